"""Notes: what is kept, what is found, and what is compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tweed.report.notes import Notes, differences, find, mean, mean_curve, values, where

LINES = [
    {"seed": 0, "lr": 0.1, "accuracy": 0.8, "curve": [4.0, 2.0]},
    {"seed": 0, "lr": 0.3, "accuracy": 0.9, "curve": [2.0, 1.0, 0.5]},
    {"seed": 1, "lr": 0.1, "accuracy": 0.7, "curve": [3.0, 3.0]},
]


def test_notes_are_kept_and_a_broken_last_line_is_dropped(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    notes.add({"kind": "exchange", "place": "a"})
    with (tmp_path / "figures.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "exchange", "place": "b"})[:9])
    again = Notes(tmp_path)
    assert again.lines == notes.lines
    assert again.has(kind="exchange", place="a") and not again.has(place="b")


def test_lines_are_found_by_their_facts() -> None:
    assert find(LINES, lr=0.3) == LINES[1] and find(LINES, lr=0.5) is None
    assert where(LINES, seed=0) == LINES[:2] and where(LINES, missing=None) == LINES
    assert values(LINES, "lr") == [0.1, 0.3]


def test_means() -> None:
    assert mean(LINES, "accuracy") == pytest.approx(0.8) and mean([], "accuracy") is None
    assert mean_curve(LINES, "curve") == [3.0, 2.0]


def test_differences_are_in_points_of_the_same_seed() -> None:
    assert differences(LINES[:1], LINES[1:2]) == [pytest.approx(-10.0)]
    assert differences(LINES[:1], LINES[2:]) == []
    last = differences(LINES[:1], LINES[1:2], lambda line: line["curve"][-1])
    assert last == [pytest.approx(150.0)]
