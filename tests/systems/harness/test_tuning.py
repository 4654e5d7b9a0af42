"""Sides of a comparison: searched, then run with each seed, in their order, whichever process ends first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from tweed.report.notes import Line, Notes, values, where
from tweed.strategy import Strategy
from tweed.systems.harness import simulated_training
from tweed.systems.harness.learning_rates import SEARCH_SEED, Grid
from tweed.systems.harness.tuning import Side, accuracy, low_loss, together, trained, tuned

SEEDS = range(3)


def run(best: float, lr: float, seed: int) -> Line:
    return {"accuracy": 1 - abs(math.log(lr / best)) / 10 + seed / 1000, "seen": seed}


def sides(seeds: Sequence[int] = SEEDS) -> list[Side]:
    peaks = {"a": 0.3, "b": 2.7, "c": 0.1}
    return [
        Side(name, {"kind": "made", "of": name}, partial(run, best), Grid(0.1), seeds)
        for name, best in peaks.items()
    ]


@pytest.mark.parametrize("processes", [1, 2])
def test_each_side_has_its_own_rate_and_the_order_is_kept(processes: int, tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    tuned(notes, sides(), processes)
    made = where(notes.lines, kind="made")
    assert values(made, "of") == ["a", "b", "c"]
    assert [line["seed"] for line in where(made, of="b")] == [0, 1, 2]
    assert {line["of"]: line["lr"] for line in made} == {"a": 0.3, "b": 2.7, "c": 0.1}
    assert SEARCH_SEED not in {line["seen"] for line in made}
    before = list(notes.lines)
    tuned(notes, sides(), 1)
    assert notes.lines == before
    tuned(notes, sides(range(4)), 1)
    assert [line["seed"] for line in notes.lines[len(before) :]] == [3, 3, 3]


def test_what_diverged_has_no_score() -> None:
    assert accuracy({"accuracy": 0.5}) == 0.5 and accuracy({"accuracy": 0.5, "diverged": True}) is None
    assert low_loss({"test_loss": 0.5}) == -0.5 and low_loss({"test_loss": None}) is None


def test_a_rate_must_do_well_with_all_seeds_of_the_search() -> None:
    def reached(lr: float, seed: int) -> Line:
        return {"accuracy": lr + seed, "diverged": lr > 1 and seed == 102}

    side = Side("a", {"kind": "made"}, reached, Grid(0.1), searched=(100, 102))
    assert side.measure(0.5) == 101.5 and side.measure(2.0) is None


def test_results_come_in_the_order_of_jobs() -> None:
    assert list(together(divmod, [(7, 2), (9, 4)], 2)) == [(3, 1), (2, 1)]
    assert list(together(divmod, [], 2)) == []


def test_virtual_workers_are_evaluated_now_and_then(tmp_path: Path) -> None:
    config = simulated_training.Config("digits", Strategy(), 6, 4, 0.1, 0, 2, every=2)
    notes = Notes(tmp_path)
    tuned(notes, [trained("dense", {"method": "dense"}, config, Grid(0.1, tries=1), range(1))], 1)
    [line] = where(notes.lines, kind="training")
    assert [steps for steps, _, _ in line["curve"]] == [2, 4]
    assert line["method"] == "dense" and line["lr"] == 0.1 and 0 <= line["accuracy"] <= 1
