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

#: Calls of this many bytes and more are measured in lockstep; smaller ones follow each other at once.
LOCKSTEP_BYTES = 1 << 20
_WARM_CALLS = 3  # takes page faults, first connections and lazy imports out of the figures


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
    """

    rounds: int
    seconds: float
    least: int
    most: int

    def block(self, call_s: float) -> int:
        """Calls in a block, where a call takes `call_s` seconds."""
        calls = min(max(self.seconds / max(call_s, 1e-9), self.least), self.most)
        return math.ceil(calls / self.rounds)


@dataclass(frozen=True, slots=True)
class Lap:
    """One block of calls on one rank: seconds of each call, and CPU seconds of all threads for the block."""

    calls_s: list[float]
    cpu_s: float


def race(contenders: Sequence[Contender], pace: Pace, *, lockstep: bool) -> dict[str, list[Lap]]:
    """Measures all contenders; every rank of the default group must call it.

    Args:
      contenders: in the same order on every rank.
      pace: how long.
      lockstep: a barrier of the default group before each call, else before each block only.

    Returns: the laps of each side on this rank.
    """
    counts = {contender.side: pace.block(_estimate(contender.call)) for contender in contenders}
    laps: dict[str, list[Lap]] = {contender.side: [] for contender in contenders}
    with _no_collector():
        for turn in range(pace.rounds):
            for contender in _rotated(contenders, turn):
                laps[contender.side].append(_lap(contender.call, counts[contender.side], lockstep))
    return laps


def _rotated(contenders: Sequence[Contender], turn: int) -> Iterator[Contender]:
    """Each begins a round as often as the others: what one leaves in the caches is no one's privilege."""
    return (contenders[(turn + i) % len(contenders)] for i in range(len(contenders)))


def _estimate(call: Callable[[], object]) -> float:
    """Warms up, and gives every rank the same guess of seconds per call."""
    _lap(call, _WARM_CALLS, lockstep=False)
    guess = sum(_lap(call, _WARM_CALLS, lockstep=False).calls_s) / _WARM_CALLS
    agreed = torch.tensor(guess, dtype=torch.float64)
    dist.all_reduce(agreed, dist.ReduceOp.MAX)
    return float(agreed)


def _lap(call: Callable[[], object], count: int, lockstep: bool) -> Lap:
    calls_s = []
    dist.barrier()
    cpu_s = time.process_time()
    for index in range(count):
        if lockstep and index:
            dist.barrier()
        began = time.perf_counter()
        call()
        calls_s.append(time.perf_counter() - began)
    return Lap(calls_s, time.process_time() - cpu_s)


@contextmanager
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
