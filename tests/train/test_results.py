"""What sides took to the same accuracy."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from tweed.train.results import by_side, reached, sent, summary

TITLES = {"tweed": "ours", "ddp-gloo": "theirs"}


def lines(
    side: str, seconds: float, megabytes: float, accuracies: list[float | None]
) -> list[dict[str, Any]]:
    """Figures of a side that takes so many seconds and megabytes per line."""
    unknown = dict.fromkeys(("link_bytes_per_worker", "waiting_s", "test_loss"))
    return [
        {"side": side, "step": step, "samples": 64 * step, "seconds": seconds * step, "accuracy": accuracy}
        | {"bytes_per_worker": round(1e6 * megabytes * step)}
        | unknown
        for step, accuracy in enumerate(accuracies, start=1)
    ]


OURS = lines("tweed", 1.0, 0.5, [None, 0.5, None, 0.75, None, 0.7])
THEIRS = lines("ddp-gloo", 10.0, 4.0, [None, 0.6, None, 0.8, None, 0.9])


def test_sides_are_compared_at_the_best_accuracy_that_all_reached() -> None:
    same = reached(by_side(TITLES, OURS + THEIRS))
    assert same is not None
    assert same.accuracy == 0.75
    steps = {title: [told["step"] for told in side] for title, side in same.sides.items()}
    assert steps == {"ours": [1, 2, 3, 4], "theirs": [1, 2, 3, 4]}
    later = reached(by_side(TITLES, lines("tweed", 1.0, 0.5, [0.5, 0.5, 0.9]) + THEIRS))
    assert later is not None
    assert later.accuracy == 0.9
    assert [side[-1]["step"] for side in later.sides.values()] == [3, 6]


def test_nothing_is_compared_with_one_side_or_before_an_evaluation() -> None:
    assert reached(by_side(TITLES, OURS)) is None
    assert reached(by_side(TITLES, OURS + THEIRS[:1])) is None
    assert reached({}) is None


def test_time_and_bytes_to_the_same_accuracy_are_shown_below_the_end() -> None:
    console = Console(width=120)
    with console.capture() as captured:
        for table in summary(by_side(TITLES, OURS + THEIRS)):
            console.print(table)
    rows = [line.split() for line in captured.get().splitlines() if line.strip()]
    assert [row[0] for row in rows] == ["accuracy", "ours", "theirs", "To", "accuracy", "ours", "theirs"]
    assert rows[3] == ["To", "an", "accuracy", "of", "75.00%"]
    assert rows[5][1:6] == ["75.00%", "4.0", "s", "64", "2.0"]
    assert rows[6][1:6] == ["80.00%", "40.0", "s", "6", "16.0"]


def test_bytes_are_the_links_where_they_were_measured() -> None:
    assert sent(OURS[0]) == 500_000
    assert sent(OURS[0] | {"link_bytes_per_worker": 7}) == 7
