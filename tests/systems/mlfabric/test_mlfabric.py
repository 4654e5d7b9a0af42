"""What the report on MLfabric makes of lines, also where a side never reaches the target."""

from __future__ import annotations

from typing import Any

import pytest

from tweed.report.notes import Line
from tweed.systems.mlfabric.cluster_training import Place
from tweed.systems.mlfabric.contenders import ASYNC, MAP, MILD, OURS, RING, SMALL, SPARES, WIDE
from tweed.systems.mlfabric.report import best, sooner, study


def run(place: Place, name: str, seed: int, there_s: float | None, **more: Any) -> Line:
    facts: dict[str, Any] = {"kind": "training", "place": str(place), "name": name, "seed": seed, "lr": 0.1}
    facts |= {"reached_s": {} if there_s is None else {"0.78": there_s}, "seconds": there_s or 400.0}
    facts |= {"counted": 900, "delay": 3.0, "deviation": 1.0, "most_delay": 9, "delays": [800, 100]}
    return facts | {"payload": 901.0, "dropped": 2, "bound": 9, "members": 30, **more}


def search(place: Place, name: str, score: float) -> Line:
    return {"kind": "search", "side": f"{place}: {name}", "lr": 0.1, "score": score}


def verdicts(lines: list[Line]) -> dict[str, tuple[str, str]]:
    return {row[0]: (row[1], row[2]) for row in study(lines).sections[0].tables[0].rows}


def test_times_count_to_the_end_for_who_is_never_there() -> None:
    ours = [run(SMALL, OURS, 0, 25.0), run(SMALL, OURS, 1, None)]
    theirs = [run(SMALL, RING, 0, None), run(SMALL, RING, 1, 100.0), run(SMALL, RING, 2, 5.0)]
    assert sooner(theirs, ours) == [400.0 / 25.0, 100.0 / 400.0]


def test_the_best_rival_is_that_of_the_search() -> None:
    names = [SPARES[3], SPARES[6]]
    lines = [search(SMALL, names[0], -50.0), search(SMALL, names[1], -40.0), search(WIDE, names[0], -1.0)]
    assert best(lines, SMALL, names) == names[1] and best(lines, WIDE, names) == names[0]
    assert best(lines, MILD, names) is None


def test_a_report_of_part_of_the_lines_says_what_is_missing() -> None:
    assert {verdict for _, verdict in verdicts([]).values()} == {"–"}
    lines = [run(SMALL, OURS, seed, 100.0) for seed in range(5)]
    lines += [run(SMALL, RING, seed, 310.0 + seed) for seed in range(5)]
    found = verdicts(lines)
    assert found["transfers of 2 %: 3× ring"][1] == "met"
    assert found["transfers of 2 %: 3× tree"] == ("–", "–")


@pytest.mark.parametrize(
    ("more", "verdict"), [({}, "met"), ({"most_delay": 10}, "missed"), ({"payload": 950.0}, "missed")]
)
def test_the_bound_is_judged_by_the_longest_delay_and_by_what_moved(
    more: dict[str, Any], verdict: str
) -> None:
    lines = [run(SMALL, OURS, 0, 10.0), run(SMALL, OURS, 1, 10.0, **more)]
    [found] = [both for goal, both in verdicts(lines).items() if goal.startswith("no update later")]
    assert found[1] == verdict


def test_the_map_has_a_row_for_each_transfer_also_where_ours_loses() -> None:
    lines = [
        run(place, name, 0, seconds)
        for place in (SMALL, WIDE, *MAP)
        for name, seconds in ((OURS, 100.0), (ASYNC, 50.0), (RING, 200.0))
    ]
    [section] = [one for one in study(lines).sections if one.title.startswith("Over the time")]
    assert [row[0] for row in section.tables[0].rows] == ["0.5%", "1.0%", "2.0%", "4.0%", "8.0%", "16.0%"]
    assert {row[1] for row in section.tables[0].rows} == {"0.50×"}
