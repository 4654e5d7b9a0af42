"""Inside a rank: contenders take turns at the same work, so that a drift of the machine meets all of them."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.distributed as dist

from tweed.testbed import sent_bytes

#: Calls of this many bytes and more are measured in lockstep; smaller ones follow each other at once.
LOCKSTEP_BYTES = 1 << 20


class Contender(NamedTuple):
    """A side of the race and one call of its work."""

    side: str
    call: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to measure.

    Attributes:
      rounds: blocks of calls for each contender; contenders alternate block by block.
      seconds: what all calls of one contender should take together.
      least, most: bounds on the number of those calls.
      warm: calls before, twice; they keep page faults, first connections and lazy imports out of the figures.
    """

    rounds: int
    seconds: float
    least: int
    most: int
    warm: int = 3

    def block(self, call_s: float) -> int:
        """Calls in a block, where a call takes `call_s` seconds."""
        calls = min(max(self.seconds / max(call_s, 1e-9), self.least), self.most)
        return math.ceil(calls / self.rounds)


@dataclass(frozen=True, slots=True)
class Lap:
    """One block of calls on one rank.

    Attributes:
      calls_s: seconds of each call.
      cpu_s: CPU seconds of all threads for the block.
      sent_bytes: what the rank's link has sent meanwhile, headers included; None outside a testbed.
    """

    calls_s: list[float]
    cpu_s: float
    sent_bytes: int | None = None


def race(contenders: Sequence[Contender], pace: Pace, *, lockstep: bool) -> dict[str, list[Lap]]:
    """Measures all contenders; every rank of the default group must call it.

    Args:
      contenders: in the same order on every rank.
      pace: how long.
      lockstep: a barrier of the default group before each call, else before each block only.

    Returns: the laps of each side on this rank.
    """
    counts = {contender.side: pace.block(_estimate(contender.call, pace.warm)) for contender in contenders}
    laps: dict[str, list[Lap]] = {contender.side: [] for contender in contenders}
    with _no_collector():
        for turn in range(pace.rounds):
            for contender in _rotated(contenders, turn):
                laps[contender.side].append(_lap(contender.call, counts[contender.side], lockstep))
    return laps


def _rotated(contenders: Sequence[Contender], turn: int) -> Iterator[Contender]:
    """Each begins a round as often as the others: what one leaves in the caches is no one's privilege."""
    return (contenders[(turn + i) % len(contenders)] for i in range(len(contenders)))


def _estimate(call: Callable[[], object], count: int) -> float:
    """Warms up, and gives every rank the same guess of seconds per call."""
    _lap(call, count, lockstep=False)
    guess = sum(_lap(call, count, lockstep=False).calls_s) / count
    agreed = torch.tensor(guess, dtype=torch.float64)
    dist.all_reduce(agreed, dist.ReduceOp.MAX)
    return float(agreed)


def _lap(call: Callable[[], object], count: int, lockstep: bool) -> Lap:
    calls_s = []
    dist.barrier()
    sent, cpu_s = sent_bytes(), time.process_time()
    for index in range(count):
        if lockstep and index:
            dist.barrier()
        began = time.perf_counter()
        call()
        calls_s.append(time.perf_counter() - began)
    spent_s, sent_then = time.process_time() - cpu_s, sent_bytes()
    return Lap(calls_s, spent_s, None if sent is None or sent_then is None else sent_then - sent)


@contextmanager
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
