"""Sides of a comparison by virtual workers: each at the best learning rate of a search of its own.

    tuned(notes, [Side("CSER", {"method": "CSER"}, config, Grid(0.03)), ...])

Sides do not wait for each other: as many as this process may use cores train at the same time, each in a
process with one thread. The notes have them in the order of the sides, whatever ends first.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tweed.experiments import learning_rates, simulated_training
from tweed.experiments.learning_rates import SEARCH_SEED, Grid
from tweed.experiments.notes import Line, Notes, find, where
from tweed.experiments.simulated_training import Config, Outcome

_Result = TypeVar("_Result")


def accuracy(outcome: Outcome) -> float | None:
    """A score for searches: the accuracy at the end."""
    return None if outcome.diverged else outcome.accuracy


def low_loss(outcome: Outcome) -> float | None:
    """A score for searches: how low the test loss is at the end."""
    return None if outcome.test_loss is None else -outcome.test_loss


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison.

    Attributes:
      name: for people; no other has it.
      facts: that its lines have in the notes.
      config: of its trainings; the search sets rate and seed.
      grid: the rates that are searched.
      seeds: of the trainings at the best rate, which are judged; none is that of the search.
      score: what is best.
    """

    name: str
    facts: Mapping[str, Any]
    config: Config
    grid: Grid
    seeds: Sequence[int] = range(5)
    score: Callable[[Outcome], float | None] = field(default=accuracy)


def tuned(notes: Notes, sides: Sequence[Side], processes: int | None = None) -> None:
    """Searches each side's rate, then trains it with each of its seeds at the best: lines of kind "search",
    "rate" and "training".

    Args:
      processes: at the same time; 1: this one alone, None: one per core.
    """
    jobs = [(side, where(notes.lines, side=side.name)) for side in sides]
    for side, lines in zip(sides, together(_side, jobs, processes), strict=True):
        for line in lines:
            notes.add(line)
        if found := find(lines, kind="rate"):
            notes.log(f"{side.name}: best at {found['lr']:g}")


def together(
    work: Callable[..., _Result], jobs: Sequence[tuple[Any, ...]], processes: int | None = None
) -> Iterator[_Result]:
    """What `work` returns of each job, in their order; in `processes` processes, None: one per core."""
    count = min(processes or len(os.sched_getaffinity(0)), len(jobs))
    if count <= 1:
        yield from (work(*job) for job in jobs)
        return
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(work, *zip(*jobs, strict=True))


def _side(side: Side, known: Iterable[Line]) -> list[Line]:
    """The lines that are not yet `known`."""
    known = list(known)

    def measure(rate: float) -> float | None:
        return side.score(simulated_training.train(replace(side.config, lr=rate, seed=SEARCH_SEED)))

    found: list[Line] = [
        {**side.facts, **line} for line in learning_rates.search(side.name, side.grid, known, measure)
    ]
    lr = learning_rates.best_lr([*known, *found], side.name)
    assert lr is not None  # the search ends
    for seed in side.seeds:
        which = {**side.facts, "kind": "training", "side": side.name, "lr": lr, "seed": seed}
        if find(known, kind="training", seed=seed) is None:
            found.append(simulated_training.line(which, replace(side.config, lr=lr, seed=seed)))
    return found
