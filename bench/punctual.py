"""Inside a rank: calls that all ranks begin at one moment, by the clock that processes of one machine share.

A barrier lets ranks go one after another, on a slow network far apart. Here they agree on a moment and
wait for it, as the simulator's ranks start together. A call lasts from then to its end at the last rank.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.distributed as dist

from tweed.systems.harness.benchmark import Contender

#: Ranks that wake up later than this after the moment were held up by the machine.
LATE_S = 1e-3


@dataclass(frozen=True, slots=True)
class Call:
    """One call on one rank, in seconds after the moment that was agreed on: when it began, when it ended."""

    began_s: float
    ended_s: float


class Turns(NamedTuple):
    """How often to call.

    Attributes:
      blocks: how often each contender has its turn.
      calls: of a turn, in a row.
      warm: calls before those of each turn: connections learn what a long link can take, and what others have
        made of them must be forgotten.
    """

    blocks: int
    calls: int
    warm: int = 1


def rounds(contenders: Sequence[Contender], turns: Turns) -> dict[str, list[Call]]:
    """Each contender's calls on this rank; every rank of the default group must call it.

    Args:
      contenders: in the same order on every rank.
    """
    calls: dict[str, list[Call]] = {contender.side: [] for contender in contenders}
    clock = Clock()
    gc.collect()
    gc.disable()
    for _ in range(turns.blocks):
        for contender in contenders:
            block = [_call(contender, clock) for _ in range(turns.warm + turns.calls)]
            calls[contender.side] += block[turns.warm :]
    gc.enable()
    dist.barrier()  # nobody leaves while others still receive
    return calls


def _call(contender: Contender, clock: Clock) -> Call:
    moment = clock.agree()
    time.sleep(max(0.0, moment - time.monotonic()))
    began = time.monotonic()
    contender.call()
    return Call(began - moment, time.monotonic() - moment)


class Clock:
    """Agrees with the other ranks on a moment that none of them has passed.

    Whoever asks last waits for nobody: what it takes is what word of a moment needs to reach all. The margin
    is twice that, as it was the last time.
    """

    def __init__(self) -> None:
        self._margin_s = 0.05
        self._took_s = self._margin_s

    def agree(self) -> float:
        """The moment, in seconds of `time.monotonic`; every rank of the default group must call it."""
        asked = time.monotonic()
        told = torch.tensor([asked + self._margin_s, -self._took_s], dtype=torch.float64)
        dist.all_reduce(told, dist.ReduceOp.MAX)
        self._took_s = time.monotonic() - asked
        self._margin_s = 2 * -float(told[1]) + 2e-3
        return float(told[0])
