"""A comparison of trainings by live ranks, from the launcher's side: rates, whole trainings, step times.

What is learned does not depend on the network, unless a side chooses by what it measures there: so rates and
curves come from ranks on this host with no network between them, as fast as the machine allows. Time per step
comes from shaped links, where all sides take turns.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from tweed import testbed
from tweed.report.notes import Line, Notes
from tweed.systems.harness import benchmark, learning_rates, training
from tweed.systems.harness.learning_rates import SEARCH_SEED, Grid
from tweed.systems.harness.training import Config, Method
from tweed.systems.harness.tuning import Side
from tweed.testbed import Network

#: The place of ranks with no network between them, beside rates of links.
HOST = "this host"
#: Of a search: the best of one seed at one step is often another one's worst.
SEARCHED = (SEARCH_SEED, SEARCH_SEED + 1, SEARCH_SEED + 2)


@dataclass(frozen=True, slots=True)
class Ranks:
    """Who trains, and where what is learned comes from.

    Attributes:
      notes: get what was measured; what they have is not measured again.
      count: ranks.
      shaped: by side, the rate of the links behind which it learns, where that matters.
      timeout_s: for one training.
    """

    notes: Notes
    count: int
    shaped: dict[str, str]
    timeout_s: float = 7200.0

    def search(self, side: Method, grid: Grid, config: Config, seeds: Sequence[int] = SEARCHED) -> None:
        """Lines of kind "search" and "rate": the rate of the highest accuracy in a training's second half."""
        run, score = partial(self._searched, side, config), partial(_second_half, config.steps)
        tried = Side(side.key, {}, run, grid, score=score, searched=seeds)
        for line in learning_rates.search(side.key, grid, self.notes.lines, tried.measure):
            self.notes.add(line)

    def _searched(self, side: Method, config: Config, rate: float, seed: int) -> Line:
        self.notes.log(f"learning rate {rate:g}, seed {seed}: {side.key}")
        once = replace(config, seed=seed)
        return asdict(self._run(training.train, self._place(side), replace(side, lr=rate), once))

    def train(self, sides: Sequence[Method], config: Config, rate: str | None = None) -> None:
        """Lines of kind "training": whole ones, behind links of `rate` or where it does not matter."""
        for side in sides:
            place = rate or self._place(side)
            facts = {"kind": "training", "rate": place, "side": side.key, "seed": config.seed}
            if self.notes.has(**facts):
                continue
            self.notes.log(f"{place}, seed {config.seed}: {side.key}")
            how = side.how if isinstance(side.how, str) else repr(side.how)
            facts |= {"lr": side.lr, "optimizer": side.optimizer, "how": how}
            self.notes.add(facts | asdict(self._run(training.train, place, side, config)))

    def time(
        self,
        sides: Sequence[Method],
        config: Config,
        rate: str,
        rounds: benchmark.Config,
        kind: str = "step_times",
    ) -> None:
        """Lines of `kind`: all sides in turns behind links of `rate`."""
        if self.notes.has(kind=kind, rate=rate, side=sides[0].key):
            return
        self.notes.log(f"{rate}: all sides in turns")
        timed = self._run(training.time_steps, rate, sides, config, rounds)
        for side, one in zip(sides, timed, strict=True):
            facts = {"kind": kind, "rate": rate, "side": side.key, "period": side.period}
            self.notes.add(facts | asdict(one))

    def _place(self, side: Method) -> str:
        return self.shaped.get(side.key, HOST)

    def _run(self, work: Callable[..., Any], place: str, *job: object) -> Any:
        """What rank 0 returns of its work."""
        network = None if place == HOST else Network.parse(f"rate={place}")
        more: dict[str, Any] = {"timeout": self.timeout_s, "backend": "gloo", "network": network}
        return testbed.run_ranks(work, self.count, *job, **more)[0]


def _second_half(steps: int, trained: Line) -> float | None:
    """The mean accuracy of evaluations after more than half of the steps; None: it diverged."""
    late = [accuracy for done, _, accuracy in trained["curve"] if 2 * done > steps]
    return None if trained["diverged"] else statistics.fmean(late)
