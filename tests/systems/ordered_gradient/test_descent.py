"""Descents in which ranks are silent: their problems, their promises; and the report on ordered gradients."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tweed.cadence import Moves, Ordered, ServerPolicy
from tweed.data.problems import Problem, linear, logistic, network, robust
from tweed.report.notes import Notes, find, where
from tweed.simulate.ordered import Air
from tweed.systems import system
from tweed.systems.harness.learning_rates import Grid
from tweed.systems.harness.tuning import Side, tuned
from tweed.systems.ordered_gradient.descent import All, InOrder, Lag, Options, descend
from tweed.systems.ordered_gradient.descents import few, to_goal

PROBLEMS = [linear(6, 1.3), logistic(6, 1.3, penalty=0.1), robust(6, 1.3)]
AIR = Air()
SHARE = ServerPolicy(share=2.0)


@pytest.mark.parametrize("problem", PROBLEMS[:2], ids=["linear", "logistic"])
def test_gradients_are_those_of_the_gap(problem: Problem) -> None:
    random = np.random.default_rng(3)
    x, direction = random.normal(size=problem.numel), random.normal(size=problem.numel)
    slope = problem.gradients(x, 0).sum(axis=0) @ direction
    small = 1e-5
    rise = (problem.gap(x + small * direction) - problem.gap(x - small * direction)) / (2 * small)
    assert np.isclose(slope, rise, rtol=1e-5)


def test_the_networks_gradients_are_those_of_torch() -> None:
    import torch
    import torch.nn.functional as F

    problem = network(ranks=3, batch=5, hidden=4)
    random = np.random.default_rng(0)
    x = random.normal(size=problem.numel)
    from tweed.data.problems import _backward, _with_ones

    pictures, labels = random.normal(size=(3, 5, 64)), random.integers(0, 10, (3, 5)).astype(np.uint8)
    first, second = x[: 65 * 4].reshape(65, 4), x[65 * 4 :].reshape(5, 10)
    ours = _backward((first, second), _with_ones(pictures), labels)
    for rank in range(3):
        w1, w2 = (torch.tensor(part, requires_grad=True) for part in (first, second))
        active = torch.relu(torch.tensor(_with_ones(pictures[rank])) @ w1)
        scores = torch.cat([active, torch.ones(5, 1, dtype=torch.float64)], dim=1) @ w2
        F.cross_entropy(scores, torch.tensor(labels[rank].astype(np.int64))).backward()  # type: ignore[no-untyped-call]
        assert w1.grad is not None and w2.grad is not None
        np.testing.assert_allclose(
            ours[rank], torch.cat([w1.grad.ravel(), w2.grad.ravel()]).numpy(), atol=1e-12
        )


@pytest.mark.parametrize("referee", [ServerPolicy(share=0.9), ServerPolicy(share=0.3)], ids=repr)
@pytest.mark.parametrize("problem", PROBLEMS[:2], ids=["linear", "logistic"])
def test_it_reaches_the_goal_with_fewer_messages_and_keeps_its_promises(
    problem: Problem, referee: ServerPolicy
) -> None:
    method = InOrder(Ordered(referee), problem.ranks, AIR)
    ours, all_of_them = (descend(problem, one, 1e-8, 5_000) for one in (method, All(AIR)))
    assert problem.gap(ours.x) <= 1e-8
    assert ours.uploads < all_of_them.uploads
    assert method.out_of_order == method.over == 0


def test_by_history_it_sends_what_lag_sends_or_less_from_the_same_state() -> None:
    problem = PROBLEMS[0]
    method = InOrder(Ordered(ServerPolicy(history=Moves(problem.rate))), problem.ranks, AIR)
    descend(problem, method, 1e-8, 5_000)
    assert method.beyond_lag == 0
    lag = descend(problem, Lag(problem.rate, problem.ranks, AIR), 1e-8, 5_000)
    assert problem.gap(lag.x) <= 1e-8


@pytest.mark.parametrize("options", [Options(momentum=0.5), Options(bits=8)], ids=repr)
def test_momentum_and_rounded_messages_reach_the_goal_too(options: Options) -> None:
    problem = PROBLEMS[0]
    method = InOrder(Ordered(ServerPolicy(share=0.3)), problem.ranks, AIR)
    assert problem.gap(descend(problem, method, 1e-8, 5_000, options).x) <= 1e-8


def test_a_method_is_compared_at_the_rate_that_suits_it(tmp_path: Path) -> None:
    """Gradient descent on a quadratic needs fewest steps between 1/L and 2/L, wherever a search begins."""
    notes = Notes(tmp_path)
    run = to_goal(lambda seed: linear(6, 1.3, seed), lambda problem: All(AIR), 1e-8)
    side = Side("gd", {"kind": "a"}, run, Grid(0.3, 1.5), range(2), partial(few, "uploads"))
    tuned(notes, [side], 1)
    lines = list(notes.lines)
    rate = find(lines, kind="rate")
    assert rate is not None and rate["settled"] and 1 <= rate["lr"] < 2
    assert find(lines, kind="search", score=None) is not None  # beyond 2/L it diverges, and soon
    assert [line["seed"] for line in where(lines, kind="a", reached=True)] == [0, 1]
    tuned(notes, [side], 1)
    assert notes.lines == lines


def test_stochastic_gradients_tell_methods_apart() -> None:
    problem = network(ranks=10, batch=16, lr=0.6, seed=7)
    ours, all_of_them = (
        descend(problem, method, 0.5, 200) for method in (InOrder(Ordered(SHARE), 10, AIR), All(AIR))
    )
    assert problem.gap(ours.x) <= 0.5 and ours.uploads < 0.9 * all_of_them.uploads


def test_the_report_says_what_is_met_and_what_was_not_measured() -> None:
    facts = {"kind": "uploads", "problem": "linear, 1.69^m, M=9", "iterations": 10, "lr": 1.0, "seconds": 1.0}
    facts |= {"where": "one channel", "window_s": 0.0}
    lines: list[dict[str, Any]] = [
        facts | {"method": method, "uploads": uploads + seed % 2, "reached": True, "seed": seed}
        for method, uploads in (("GD", 200), ("LAG-WK", 20), ("share 2", 30))
        for seed in range(5)
    ]
    lines += [{**lines[0], "kind": kind, "uploads": 1} for kind in ("search", "channel")]
    del lines[-2]["reached"], lines[-2]["seconds"]
    goals = system("ordered_gradient").study(lines).sections[0].tables[0].rows
    verdicts = {row[0]: row[2] for row in goals}
    uneven = "share 2, uneven ranks: at most"
    assert verdicts[f"{uneven} 1.1 × LAG-WK's messages; linear, 1.69^m, M=9"] == "missed"
    assert verdicts[f"{uneven} a fifth of GD's messages; linear, 1.69^m, M=9"] == "met"
    assert verdicts["share 2, ranks alike: at least 30 % fewer than LAG-WK; linear, 1.1^m, M=20"] == "–"
