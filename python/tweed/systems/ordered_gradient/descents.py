"""Descents of many methods as sides of a comparison, each at the learning rate at which it costs least."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from tweed.data.problems import Problem
from tweed.report.notes import Line
from tweed.systems.ordered_gradient.descent import Method, Options, broken, counts, descend

#: Iterations after which a descent has not reached its goal.
LIMIT = 5_000
_PLAIN = Options()


def to_goal(
    problem: Callable[[int], Problem],
    method: Callable[[Problem], Method],
    goal: float,
    options: Options = _PLAIN,
) -> Callable[[float, int], Line]:
    """What a `tuning.Side` runs: a descent on the problem of a seed until the gap is at most `goal`. Learning
    rates are in units of the problem's."""
    return partial(_descend, problem, method, goal, options)


def _descend(make: Any, method_of: Any, goal: float, options: Options, rate: float, seed: int) -> Line:
    plain = make(seed)
    problem = replace(plain, rate=rate * plain.rate)
    method = method_of(problem)
    found = descend(problem, method, goal, LIMIT, options)
    facts = {"bits": options.bits or 32, "reached": problem.gap(found.x) <= goal, "seconds": found.seconds}
    return {**counts(found), **facts, **broken(method)}


def few(cost: Literal["uploads", "seconds"], line: Line) -> float | None:
    """A score for searches: how little a descent cost that reached its goal."""
    return -float(line[cost]) if line["reached"] else None
