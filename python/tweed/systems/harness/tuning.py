"""Sides of a comparison, each at the best learning rate of a search of its own, over seeds; kept in notes.

    tuned(notes, [trained("CSER", {"method": "CSER"}, config, Grid(0.03)), ...])

Sides do not wait for each other: as many as this process may use cores run at the same time, each in a
process with one thread. The notes have them in the order of the sides, whatever ends first.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from tweed.report.notes import Line, Notes, find, where
from tweed.systems.harness import learning_rates, simulated_training
from tweed.systems.harness.learning_rates import SEARCH_SEED, Grid
from tweed.systems.harness.simulated_training import Config

_Result = TypeVar("_Result")


def accuracy(line: Line) -> float | None:
    """A score for searches: the accuracy at the end."""
    return None if line.get("diverged") else float(line["accuracy"])


def beyond_guessing(line: Line) -> float | None:
    """A score for searches: the accuracy at the end, if it is more than twice that of guessing one of ten."""
    found = accuracy(line)
    return found if found is not None and found > 0.2 else None


def low_loss(line: Line) -> float | None:
    """A score for searches: how low the test loss is at the end."""
    return None if line["test_loss"] is None else -float(line["test_loss"])


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison.

    Attributes:
      name: for people; no other has it.
      facts: that its lines have in the notes; their kind among them.
      run: what came of a learning rate and a seed.
      grid: the rates that are searched.
      seeds: of the runs at the best rate, which are judged; none is that of the search.
      score: what is best; None: diverged, or without success.
      searched: seeds of the search, whose mean score counts; none is in `seeds`.
    """

    name: str
    facts: Mapping[str, Any]
    run: Callable[[float, int], Line]
    grid: Grid
    seeds: Sequence[int] = range(5)
    score: Callable[[Line], float | None] = accuracy
    searched: Sequence[int] = (SEARCH_SEED,)

    def measure(self, rate: float) -> float | None:
        """The mean score of a rate; None if one of the seeds has none."""
        scores: list[float] = []
        for seed in self.searched:
            score = self.score(self.run(rate, seed))
            if score is None:
                return None
            scores.append(score)
        return statistics.fmean(scores)


def trained(
    name: str,
    facts: Mapping[str, Any],
    config: Config,
    grid: Grid,
    seeds: Sequence[int] = range(5),
    score: Callable[[Line], float | None] = accuracy,
) -> Side:
    """A side that virtual workers train by `config`, but for rate and seed: lines of kind "training"."""
    return Side(name, {"kind": "training", **facts}, partial(_train, config), grid, seeds, score)


def _train(config: Config, lr: float, seed: int) -> Line:
    return simulated_training.line({}, replace(config, lr=lr, seed=seed))


def tuned(notes: Notes, sides: Sequence[Side], processes: int | None = None) -> None:
    """Searches each side's rate, then runs it with each of its seeds at the best: lines of kind "search" and
    "rate", and of the kind of the side.

    Args:
      processes: at the same time; 1: this one alone, None: one per core.
    """
    jobs = [(side, where(notes.lines, side=side.name)) for side in sides]
    for side, lines in zip(sides, together(_lines, jobs, processes), strict=True):
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


def _lines(side: Side, known: Iterable[Line]) -> list[Line]:
    """The lines of a side that are not yet `known`."""
    known = list(known)
    searched = learning_rates.search(side.name, side.grid, known, side.measure)
    found: list[Line] = [{**side.facts, **line} for line in searched]
    lr = learning_rates.best_lr([*known, *found], side.name)
    assert lr is not None  # the search ends
    for seed in side.seeds:
        if find(known, kind=side.facts["kind"], seed=seed) is None:
            which = {**side.facts, "side": side.name, "lr": lr, "seed": seed}
            found.append({**which, **side.run(lr, seed)})
    return found
