"""The report of double machine learning, from lines that were never measured; what is simulated of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tweed.report.notes import Notes, find, where
from tweed.report.study import markdown
from tweed.systems.double_ml.contenders import CAPS, CONTENDERS, FOLDS, MEMORIES_MB, MODELS, SLOTS, TASKS
from tweed.systems.double_ml.measured import in_turn, is_first
from tweed.systems.double_ml.report import study, verdicts
from tweed.systems.double_ml.simulated import simulated

Lines = list[dict[str, Any]]
SECONDS = {"loop": 10.0, "fine": 5.5, "coarse": 5.8, "killed": 6.0, "package": 7.0}
FACTS = {"theta": 0.5, "standard_error": 0.01, "digest": "a", "slots": 2, "trees": 16}


def timed(contender: str, number: int) -> dict[str, Any]:
    line = {"kind": "timed", "contender": contender, "round": number, "seconds": SECONDS[contender]}
    return {**line, **FACTS, "deaths": 5 * (contender == "killed"), "tasks_s": [0.1] * 100}


def lines() -> Lines:
    cores = [(grain, workers) for grain in ("fine", "coarse") for workers in (1, 2, 8)]
    sums = {"warm_ms": 7, "by_hand_ms": 7, "gb_seconds": 9.0, "usd": 0.1}
    grains = {"fine": {"cold_starts": 1000, "seconds": 8.0}, "coarse": {"cold_starts": 200, "seconds": 9.0}}
    overhead = {"work_s": 100.0, "tasks": TASKS, "longest_s": 0.1, "overhead_s": 0.12}
    sent = {"bytes": 700, "training_ids_bytes": 20_000, "test_ids_bytes": 5000, "shared_bytes": 10**5}
    return [
        *(
            {
                "kind": "bits",
                "grain": grain,
                "workers": workers,
                "killed": killed,
                "deaths": int(killed),
                **FACTS,
            }
            for grain, workers in cores
            for killed in (False, True)
        ),
        *(
            {"kind": "coverage", "model": name, "samples": 200, "covered": 188, "width": 0.3}
            for name in MODELS
        ),
        *(timed(contender, number) for number in range(3) for contender in CONTENDERS),
        *(
            {"kind": "slots", "slots": slots, "seconds": 100.0 / slots + 0.13, **overhead}
            for slots in (*SLOTS, TASKS)
        ),
        *(
            {"kind": "payload", "grain": grain, "tasks": 1, "copies": 2, "processes": 2, **sent}
            for grain in grains
        ),
        *(
            {"kind": "bill", "grain": grain, "cap": cap, "memory_mb": memory_mb, **facts, **sums}
            for grain, facts in grains.items()
            for cap in CAPS
            for memory_mb in MEMORIES_MB
        ),
        {"kind": "package", "installed": True},
        *({"kind": "agreement", "model": name, "learners": "linear", "off": 1e-15} for name in MODELS),
    ]


def test_all_goals_can_be_met() -> None:
    found = verdicts(lines())
    assert len(found) == 15 and {verdict for _, _, verdict in found} == {True}
    assert markdown(study(lines()), "double_ml").count("double_ml-bill.svg") == 1


def test_without_lines_nothing_is_judged() -> None:
    assert {verdict for _, _, verdict in verdicts([])} == {None}


@pytest.mark.parametrize(
    ("facts", "change", "missed"),
    [
        ({"kind": "bits", "workers": 8}, {"digest": "b"}, "theta, its standard error"),
        ({"kind": "bits"}, {"deaths": 0}, "theta, its standard error"),
        ({"contender": "killed", "round": 2}, {"digest": "b"}, "the same bits as in one process"),
        ({"kind": "coverage", "model": "PLR"}, {"covered": 197}, "PLR: intervals"),
        ({"contender": "fine"}, {"seconds": 6.3}, "as many workers as cores"),
        ({"contender": "killed"}, {"seconds": 6.7}, "under 20 % more time"),
        ({"contender": "package"}, {"seconds": 5.4}, "the package's own parallel fit"),
        ({"kind": "slots", "slots": 16}, {"seconds": 8.0}, "16 slots, simulated"),
        ({"kind": "slots", "slots": TASKS}, {"seconds": 0.3}, "a slot for each of 1,000 tasks"),
        ({"kind": "payload", "grain": "fine"}, {"bytes": 2600}, "fine tasks: 8×"),
        ({"kind": "payload", "grain": "fine"}, {"copies": 100}, "what is shared"),
        ({"kind": "bill", "memory_mb": 512}, {"warm_ms": 8}, "the sum of durations times memory"),
        ({"kind": "bill", "grain": "coarse"}, {"seconds": 7.0}, "coarse tasks have fewer cold starts"),
        ({"kind": "agreement"}, {"off": 1e-7}, "thetas, standard errors and scores"),
    ],
)
def test_a_goal_is_missed(facts: dict[str, Any], change: dict[str, Any], missed: str) -> None:
    matching = where(lines(), **facts)
    found = verdicts([{**line, **change} if line in matching else line for line in lines()])
    assert [goal for goal, _, verdict in found if verdict is False and missed in goal]
    assert [verdict for _, _, verdict in found].count(False) <= 2


def test_a_quick_look_is_not_judged_by_goals_of_more() -> None:
    few = {"samples": 10, "covered": 5}
    quick = [{**line, **few} if line["kind"] == "coverage" else line for line in lines()]
    quick = [line for line in quick if line.get("workers") != 8]
    quick = [line for line in quick if line["kind"] != "agreement" or line["model"] == "PLR"]
    assert [verdict for _, _, verdict in verdicts(quick)].count(None) == 3


def test_a_package_that_is_not_installed_is_said_to_be() -> None:
    without = [line for line in lines() if line["kind"] != "agreement" and line.get("contender") != "package"]
    found = verdicts(
        [*(line for line in without if line["kind"] != "package"), {"kind": "package", "installed": False}]
    )
    said = [what for goal, what, verdict in found if verdict is None]
    assert said == ["the package is not installed"] * 2


def test_slots_and_bills_are_simulated_from_measured_durations(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    simulated(notes, tasks=40)
    assert notes.lines == []  # nothing was timed
    notes.add({**timed("loop", 0), "tasks_s": np.linspace(0.1, 0.2, 20).tolist()})
    simulated(notes, tasks=40)
    count = len(notes.lines)
    simulated(notes, tasks=40)
    assert count == len(notes.lines) == 1 + 3 + 2 * len(CAPS) * len(MEMORIES_MB)
    for line in where(notes.lines, kind="slots"):
        assert line["work_s"] == pytest.approx(6.0) and line["longest_s"] == pytest.approx(0.2)
        assert line["seconds"] > max(line["work_s"] / line["slots"], line["longest_s"])
    assert all(line["warm_ms"] == line["by_hand_ms"] for line in where(notes.lines, kind="bill"))
    fine, coarse = (find(notes.lines, kind="bill", grain=grain) for grain in ("fine", "coarse"))
    assert fine and coarse and (fine["cold_starts"], coarse["cold_starts"]) == (40, 40 // FOLDS)


def test_tasks_in_turn_are_timed_and_see_what_is_shared_once() -> None:
    taken: list[float] = []
    found = in_turn(is_first, [{}, {}, {}], shared={"first": True}, taken=taken)
    assert [first for first, _ in found.values()] == [True, False, False] and len(taken) == 3
