"""The experiment on Hoplite: few simulated processes meet its goals, and live lines are judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tweed.report.notes import Line, Notes
from tweed.systems import hoplite
from tweed.systems.hoplite.collectives import rate_mbit, sizes
from tweed.systems.hoplite.report import sections, verdicts


def test_a_few_simulated_processes_meet_the_goals(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    for _ in range(2):
        hoplite._simulated(notes, 4)
    assert len(notes.lines) == 3 + 6
    judged = [(goal, met) for goal, _, met in verdicts(notes.lines) if met is not None]
    assert len(judged) == 8 and all(met for _, met in judged), judged
    assert [section.title for section in sections(notes.lines)][:2] == ["Goals", "The planner, simulated"]


@pytest.mark.parametrize(("ray_s", "met"), [(3.3, True), (2.0, False)])
def test_live_lines_are_judged_beside_ray(ray_s: float, met: bool) -> None:
    facts = {"kind": "live", "nodes": 8, "rate_mbit": rate_mbit(8), "bytes": sizes(8)[0]}
    facts |= {"collective": "broadcast"}
    lines: list[Line] = [
        {**facts, "side": "tweed", "seconds": [0.6, 0.6, 9.0], "busy": 0.8},
        {**facts, "side": "ray", "seconds": [ray_s] * 3, "busy": 0.3},
    ]
    found = {goal: verdict for goal, _, verdict in verdicts(lines) if verdict is not None}
    assert found == {
        "broadcast, 8 raylets: 5.5 times as fast as Ray's objects": met,
        "broadcast, 8 raylets: at most 1.25 S/B": True,
        "8 raylets: processors at most 70% busy": False,
    }
    assert "Between raylets, beside Ray's objects" in [section.title for section in sections(lines)]


def test_applications_are_shown_beside_ray_and_their_bound() -> None:
    facts = {"kind": "application", "nodes": 9, "s_b": 0.2, "application": "serving", "bound": 4.1}
    lines: list[Line] = [
        {**facts, "side": "tweed", "seconds": [0.5, 1.5]},
        {**facts, "side": "ray", "seconds": [2.0, 2.0]},
    ]
    shown = {section.title: section for section in sections(lines)}["Applications, beside Ray's objects"]
    assert shown.tables[0].rows == [["serving, 8 workers", "5.00", "10.00", "2.0×", "4.10", "–", "–"]]


def test_applications_are_judged_by_their_number_of_workers() -> None:
    facts = {"kind": "application", "s_b": 0.5, "application": "serving", "bound": 4.1}
    lines: list[Line] = [
        {**facts, "nodes": nodes, "side": side, "seconds": [seconds]}
        for nodes in (9, 17)
        for side, seconds in (("tweed", 1.0), ("ray", 3.0))
    ]
    found = {goal: verdict for goal, _, verdict in verdicts(lines) if verdict is not None}
    assert found == {
        "serving, 8 workers: 2.2 times as fast as Ray's objects": True,
        "serving, 16 workers: 3.3 times as fast as Ray's objects": False,
    }


def test_a_look_up_is_judged_beside_a_call_of_an_actor() -> None:
    facts = {"kind": "live", "nodes": 8, "rate_mbit": rate_mbit(8), "bytes": 4, "collective": "look-up"}
    lines: list[Line] = [
        {**facts, "side": side, "seconds": [seconds], "busy": 0.0}
        for side, seconds in (("tweed", 0.002), ("ray", 0.003))
    ]
    judged = {goal: (found, met) for goal, found, met in verdicts(lines) if met is not None}
    assert judged == {"a look-up, 8 raylets: at most 0.5 of a call of an actor": ("2.00 of 3.00 ms", False)}


def test_what_goes_through_ray_s_own_refs_is_judged_beside_tweed_s() -> None:
    facts = {"kind": "application", "nodes": 16, "s_b": 0.5, "application": "policy sync", "bound": 1.0}
    lines: list[Line] = [
        {**facts, "side": side, "seconds": [seconds]}
        for side, seconds in (("tweed", 1.0), ("ray", 2.0), ("direct", 1.2))
    ]
    assert [(found, met) for _, found, met in verdicts(lines) if met is not None] == [
        ("2.00×", True),
        ("0.83", False),
    ]


@pytest.mark.parametrize(("after_s", "met"), [([1.1, 2.9], True), ([3.1, 1.0], False)])
def test_the_longest_round_from_a_death_on_is_judged(after_s: list[float], met: bool) -> None:
    facts = {"kind": "death live", "nodes": 9, "application": "serving", "seconds": [0.9, 1.0, 5.0]}
    lines: list[Line] = [
        {**facts, "side": "tweed", "after_s": after_s},
        {**facts, "side": "ray", "after_s": [7.0]},
    ]
    found = {goal: verdict for goal, _, verdict in verdicts(lines) if verdict is not None}
    assert list(found.values()) == [met] and "a worker dies" in next(iter(found))
    shown = {section.title: section for section in sections(lines)}["A worker dies"]
    assert shown.tables[0].rows[1] == ["serving, 8 workers", "ray", "1.00", "7.00"]


def test_updates_are_simulated_both_ways(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    for _ in range(2):
        hoplite._updates(notes, "AlexNet", ranks=3)
    (line,) = notes.lines
    assert 0.9 < line["whole"] < 2.5 and 0.9 < line["blocks"] < 2.5
    shown = {section.title: section for section in sections(notes.lines)}["Asynchronous SGD, simulated"]
    assert shown.tables[0].rows[0][:2] == ["AlexNet, 2 workers", "0.21"]
