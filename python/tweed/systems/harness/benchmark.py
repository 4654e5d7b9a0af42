"""Inside a rank: contenders take turns at the same work, so that a drift of the machine meets all of them.

    benchmark([Contender("gloo", ...), Contender("tweed", ...)], Config(10, 1.0, 10, 4000))

A round has a block of calls of each contender. How many calls is found before the first round, where warm
calls show what one takes (`Config.warm`); or in each round anew, where a network forgets in others' rounds
what it can take, and a first call that is not counted shows it (`Config.settle`).
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from tweed.errors import TweedError
from tweed.systems.harness.barriers import GroupBarrier
from tweed.testbed import sent_bytes

#: Calls of this many bytes and more are measured in lockstep; smaller ones follow each other at once.
LOCKSTEP_BYTES = 1 << 20
#: A settling call that takes longer is counted: so slow a network gives few others.
SLOW_S = 2.0


class Contender(NamedTuple):
    """One of those that are compared.

    Attributes:
      side: its name.
      call: one call of its work. A float that it returns is kept, see `Round.returned`.
      period: calls after which it is where it began; rounds have whole periods.
      warm: calls at least before the first round.
    """

    side: str
    call: Callable[[], object]
    period: int = 1
    warm: int = 0

    def whole(self, calls: float) -> int:
        """About so many calls, in whole periods: at least one."""
        return max(1, int(calls) // self.period) * self.period


@dataclass(frozen=True, slots=True)
class Config:
    """How long to measure.

    Attributes:
      rounds: blocks of calls for each contender; contenders alternate block by block.
      seconds: what all calls of one contender should take together.
      least, most: bounds on the number of those calls.
      warm: calls before, twice; they keep page faults, first connections and lazy imports out of the times.
      settle: the first call of each round is not counted, and sets how many follow it; then there are no warm
        calls, and `least` is not looked at.
    """

    rounds: int
    seconds: float
    least: int
    most: int
    warm: int = 3
    settle: bool = False

    def block(self, call_s: float) -> int:
        """Calls in a round, where a call takes `call_s` seconds."""
        calls = min(max(self.seconds / max(call_s, 1e-9), self.least), self.most)
        return math.ceil(calls / self.rounds)

    def after(self, first_s: float) -> int:
        """Calls that follow a settling call of `first_s` seconds; 0 if none fits into the round."""
        return int(min(self.seconds / max(first_s, 1e-9), self.most) / self.rounds)


@dataclass(slots=True)
class Round:
    """One block of calls on one rank.

    Attributes:
      calls_s: seconds of each call.
      cpu_s: CPU seconds of all threads for the block.
      sent_bytes: what the rank's link has sent meanwhile, headers included; None outside a testbed.
      returned: of each call that returned a float, that.
    """

    calls_s: list[float]
    cpu_s: float = 0.0
    sent_bytes: int | None = None
    returned: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Measured:
    """One contender's rounds on one rank; and why it could not go on, if it could not."""

    rounds: list[Round] = field(default_factory=list)
    failed: str | None = None


def benchmark(
    contenders: Sequence[Contender],
    config: Config,
    *,
    lockstep: bool = False,
    barrier: GroupBarrier | None = None,
) -> dict[str, Measured]:
    """Measures all contenders; every rank must call it.

    Args:
      contenders: in the same order on every rank.
      config: how long.
      lockstep: a barrier before each call, else before each block only.
      barrier: how ranks wait for each other; by default over the default group.

    Returns: what this rank measured, by side. A contender that fails by a TweedError on any rank is not
      measured any more, and the others go on.

    Raises: TweedError, in lockstep: ranks that wait at the next barrier do not learn of a failure.
    """
    watch = _Watch(config, barrier or GroupBarrier())
    measured = {contender.side: Measured() for contender in contenders}
    calls = {} if config.settle else {one.side: watch.warm(one, measured[one.side]) for one in contenders}
    with _no_collector():
        for turn in range(config.rounds):
            # Each begins a round as often as the others: what one leaves in the caches is no one's privilege.
            for contender in (contenders[(turn + i) % len(contenders)] for i in range(len(contenders))):
                mine = measured[contender.side]
                if math.isinf(watch.slowest(0.0, mine)):
                    continue
                if config.settle:
                    watch.settled(contender, mine)
                else:
                    watch.block(contender, calls[contender.side], mine, lockstep=lockstep)
    return measured


@dataclass(frozen=True, slots=True)
class _Watch:
    """What takes the times on one rank."""

    config: Config
    barrier: GroupBarrier

    def warm(self, contender: Contender, measured: Measured) -> int:
        """Warms up, and gives every rank the same number of calls per round."""
        warm, last, count = Measured(), Measured(), contender.whole(self.config.warm)
        self.block(contender, contender.whole(max(self.config.warm, contender.warm)), warm)
        if warm.failed is None:
            self.block(contender, count, last)
        measured.failed = warm.failed or last.failed
        call_s = self.slowest(sum(sum(found.calls_s) for found in last.rounds), measured) / count
        return contender.whole(self.config.block(call_s))

    def settled(self, contender: Contender, measured: Measured) -> None:
        """A round that begins with a settling call, or as many as a period has."""
        first = Measured()
        self.block(contender, contender.period, first)
        measured.failed = first.failed
        first_s = self.slowest(sum(first.rounds[0].calls_s), measured) / contender.period
        if math.isinf(first_s):
            return
        more = self.config.after(first_s)
        if not more or first_s > SLOW_S:
            measured.rounds += first.rounds
        if more:
            self.block(contender, contender.whole(more), measured)

    def block(self, contender: Contender, count: int, measured: Measured, *, lockstep: bool = False) -> None:
        """Adds a round of `count` calls; after a failure, one of those that ended."""
        found = Round([])
        measured.rounds.append(found)
        self.barrier.wait()
        sent, cpu_s = sent_bytes(), time.process_time()
        try:
            for index in range(count):
                if lockstep and index:
                    self.barrier.wait()
                began = time.perf_counter()
                returned = contender.call()
                found.calls_s.append(time.perf_counter() - began)
                if isinstance(returned, float):
                    found.returned.append(returned)
        except TweedError as error:
            if lockstep:
                raise
            measured.failed = str(error)
        found.cpu_s = time.process_time() - cpu_s
        if sent is not None:
            self.barrier.wait()  # others have what was sent to them: all of it has left
        sent_then = sent_bytes()
        found.sent_bytes = None if sent is None or sent_then is None else sent_then - sent

    def slowest(self, seconds: float, measured: Measured) -> float:
        """The most seconds of any rank; infinitely many, if the contender failed on one."""
        return self.barrier.slowest(seconds if measured.failed is None else math.inf)


@contextmanager
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
