"""Descents of many methods, each at the learning rate at which it costs least, over seeds; kept in notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tweed.data.problems import Problem
from tweed.experiments import learning_rates
from tweed.experiments.descent import Method, Options, broken, counts, descend
from tweed.experiments.learning_rates import SEARCH_SEED, Grid, best_lr
from tweed.experiments.notes import Line, Notes

#: Iterations after which a descent has not reached its goal.
LIMIT = 5_000


@dataclass(frozen=True, slots=True)
class Side:
    """One method on one problem.

    Attributes:
      name: for people; no other has it.
      facts: that its lines have in the notes; a kind among them.
      problem: of a seed.
      method: for a problem.
      goal: gap at which a descent ends.
      grid: learning rates in units of the problem's.
      cost: what is to be least: "uploads", or "seconds" of virtual time.
      options: of the descent.
    """

    name: str
    facts: Mapping[str, Any]
    problem: Callable[[int], Problem]
    method: Callable[[Problem], Method]
    goal: float
    grid: Grid
    cost: str = "uploads"
    options: Options = field(default_factory=Options)

    def descend(self, rate: float, seed: int) -> Line:
        """What came of one descent."""
        plain = self.problem(seed)
        problem = replace(plain, rate=rate * plain.rate)
        method = self.method(problem)
        found = descend(problem, method, self.goal, LIMIT, self.options)
        reached = problem.gap(found.x) <= self.goal
        facts = {"seed": seed, "lr": rate, "bits": self.options.bits or 32, "reached": reached}
        return {**self.facts, **facts, **counts(found), "seconds": found.seconds, **broken(method)}


def run(notes: Notes, sides: Sequence[Side], seeds: Sequence[int]) -> None:
    """Of each side, lines of kind "search" and "rate", and one per seed at the best rate."""
    for side in sides:

        def measure(rate: float, side: Side = side) -> float | None:
            line = side.descend(rate, SEARCH_SEED)
            return -float(line[side.cost]) if line["reached"] else None

        for line in learning_rates.search(side.name, side.grid, notes.lines, measure):
            notes.add(line)
        rate = best_lr(notes.lines, side.name)
        assert rate is not None  # the search ended
        missing = [seed for seed in seeds if not notes.has(seed=seed, **side.facts)]
        for seed in missing:
            notes.add(side.descend(rate, seed))
        if missing:
            notes.log(f"{side.name}: best at {rate:g}")
