"""What `tweed top` prints, at several widths."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from tests.metrics.cases import BEFORE, NOW, WINDOW, matrix
from tweed.metrics.view import View, shortened
from tweed.metrics.words import duration, milliseconds, rate, size


def printed(view: View, width: int = 80) -> str:
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(view)
    return captured.get()


def test_it_says_which_run_how_far_and_who_is_late() -> None:
    lines = printed(View(NOW, WINDOW)).splitlines()
    assert lines[0] == "digits-every_step: 2 ranks, up 12.0 s, process 100"
    assert lines[1] == "step 15, 5.0 steps/s, 25% waiting, metrics of the last 2.0 s"
    assert lines[2] == "Rank 1 on host1 holds up the others: last in 100%, 2.00 ms late on average."


def test_the_epoch_is_shown_where_members_come_and_go() -> None:
    assert printed(View(replace(NOW, epoch=7), WINDOW)).startswith(
        "digits-every_step: 2 ranks of epoch 7, up"
    )


def test_the_ranks_have_their_rates_totals_and_arrivals() -> None:
    rows = [line.split() for line in printed(View(NOW, WINDOW)).splitlines()]
    assert ["0", "host0", "1.00", "2.00", "3.0", "MB", "3", "0%", "0.00", "ms"] in rows
    assert ["1", "host1", "1.00", "2.00", "3.0", "MB", "3", "100%", "2.00", "ms"] in rows


def test_the_matrix_has_rate_round_trip_and_what_was_sent_again() -> None:
    text = printed(View(NOW, WINDOW))
    below = text[text.index("from/to") :].splitlines()
    assert below[0].split() == ["from/to", "0", "1"]
    assert [line.split() for line in below[1:3]] == [["0", "1.00", "+2"], ["0.25", "ms"]]


def test_without_wires_the_matrix_says_so() -> None:
    now = matrix(12.0, 3, kind="shm")
    assert "shm" in printed(View(now, now.since(matrix(10.0, 1, kind="shm"))))


def test_a_line_of_time_shows_what_each_rank_did_and_what_was_hidden() -> None:
    lines = [line.split() for line in printed(View(NOW, WINDOW)).splitlines()]
    assert ["rank", "time", "computing", "encoding", "waiting", "under", "way", "hidden"] in lines
    bar = 12 * "█" + 3 * "▒" + 5 * "░"
    assert ["1", bar, "62%", "12%", "25%", "50%", "25%"] in lines


def test_no_line_of_time_where_nobody_trains() -> None:
    still = replace(NOW, rows=tuple(replace(row, training=None) for row in NOW.rows))
    assert "computing" not in printed(View(still, still.since(BEFORE)))


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("width", [80, 120])
def test_up_to_eight_ranks_fit_a_narrow_terminal(ranks: int, width: int) -> None:
    now = matrix(12.0, 3, size=ranks)
    text = printed(View(now, now.since(matrix(10.0, 1, size=ranks))), width)
    assert "from/to" in text
    assert "…" not in text


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_fifty_columns_are_enough(ranks: int) -> None:
    now = matrix(12.0, 3, size=ranks)
    text = printed(View(now, now.since(matrix(10.0, 1, size=ranks))), 50)
    assert "…" not in text and max(map(len, text.splitlines())) <= 50
    assert "host1" in text


def test_many_ranks_get_a_list_of_the_busiest_links() -> None:
    now = matrix(12.0, 3, size=20)
    text = printed(View(now, now.since(matrix(10.0, 1, size=20))))
    assert "from/to" not in text
    assert "the 12 busiest of 380 links" in text


def test_silence_and_absence_are_said() -> None:
    silent = replace(NOW, ranks=3, rows=(NOW.rows[0], replace(NOW.rows[1], silent_s=7.0)))
    text = printed(View(silent, silent.since(BEFORE), "The run has ended."))
    assert "3 ranks, 1 not heard of yet" in text
    assert "Rank 1 has told nothing for 7.0 s." in text
    assert text.rstrip().endswith("The run has ended.")


def test_a_run_without_attach_tells_no_steps() -> None:
    bare = replace(NOW, rows=tuple(replace(row, training=None) for row in NOW.rows))
    assert printed(View(bare, bare.since(BEFORE))).splitlines()[1] == "metrics of the last 2.0 s"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (rate(0), "0"),
        (rate(12_345), "0.01"),
        (rate(12_345_000), "12.3"),
        (rate(1_234_500_000), "1,234"),
        (size(999), "999 B"),
        (size(1_500), "1.5 kB"),
        (size(2.5e12), "2.5 TB"),
        (milliseconds(0.00025), "0.25 ms"),
        (milliseconds(1.5), "1,500 ms"),
        (milliseconds(0.000004), "4 µs"),
        (shortened("node17.cluster.example"), "node17"),
        (shortened("10.77.0.1"), "10.77.0.1"),
        (shortened("a" * 40), "a" * 15 + "…"),
        (duration(3.14), "3.1 s"),
        (duration(75), "1 min 15 s"),
        (duration(7_320), "2 h 2 min"),
    ],
)
def test_figures_in_words(said: str, expected: str) -> None:
    assert said == expected
