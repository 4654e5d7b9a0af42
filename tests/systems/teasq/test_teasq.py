"""What the report on TEASQ-Fed makes of lines, also where a side never reaches the target."""

from __future__ import annotations

from typing import Any

import pytest

from tweed.report.notes import Line
from tweed.systems.teasq.contenders import OURS, TARGET, WHOLE
from tweed.systems.teasq.report import apart, best, sooner, study


def run(side: str, seed: int, there_s: float | None, level: float = 0.8) -> Line:
    """Below the target until `there_s`, then at `level`; an evaluation each 5 s, a commit and a byte each."""
    curve = [
        (5.0 * at, at, level if there_s is not None and 5.0 * at > there_s else 0.1, at)
        for at in range(1, 41)
    ]
    facts: dict[str, Any] = {"kind": "training", "side": side, "seed": seed, "lr": 0.1, "curve": curve}
    return facts | {"accuracy": 0.5, "counted": 9, "up_share": 0.1, "down_share": 0.2, "delay": 0.0}


def search(side: str, score: float) -> Line:
    return {"kind": "search", "side": side, "lr": 0.1, "score": score}


def test_times_count_to_the_end_for_who_is_never_there() -> None:
    ours = [run(OURS, 0, 25.0), run(OURS, 1, None)]
    theirs = [run("FedAvg", 0, None), run("FedAvg", 1, 75.0), run("FedAvg", 2, 5.0)]
    assert sooner(theirs, ours) == [200.0 / 50.0, 100.0 / 200.0]


def test_the_best_mixing_rate_is_that_of_the_search_and_names_are_whole() -> None:
    scores = {"FedAsync, α=0.1": -50.0, "FedAsync, α=0.3": -60.0, "TEA-Fed": -90.0, WHOLE: -10.0}
    lines = [run(side, 0, 20.0) for side in scores] + [search(*pair) for pair in scores.items()]
    assert [line["side"] for line in best(lines, "FedAsync")] == ["FedAsync, α=0.1"]
    assert [line["side"] for line in best(lines, "TEA-Fed")] == ["TEA-Fed"]
    assert best(lines, "FedAvg") == []


def test_accuracies_are_compared_at_the_same_point() -> None:
    mine, theirs = [run(OURS, 0, 25.0, 0.8)], [run("FedAvg", 0, 100.0, 0.75)]
    assert apart(mine, theirs, 0, lambda one, other: 75.0) == [pytest.approx(70.0)]
    assert apart(mine, theirs, 0, lambda one, other: 200.0) == [pytest.approx(5.0)]
    assert apart(mine, [run("FedAvg", 1, 5.0)], 0, lambda one, other: 75.0) == []


def test_a_report_of_part_of_the_lines_says_what_is_missing() -> None:
    assert {row[2] for row in study([]).sections[0].tables[0].rows} == {"–"}
    lines = [run(OURS, seed, 25.0) for seed in range(5)] + [search(OURS, 1.0)]
    lines += [run("FedAvg", seed, None) for seed in range(5)] + [search("FedAvg", 1.0)]
    rows = {row[0]: row for row in study(lines).sections[0].tables[0].rows}
    goal = rows[f"{TARGET:.0%} in at most 0.5 of FedAvg's time"]
    assert goal[2] == "met" and "5 of 5 not there by the end" in goal[1]
