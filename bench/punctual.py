"""Inside a rank: calls that all ranks begin at one moment, by the clock that processes of one machine share.

A barrier lets ranks go one after another, on a slow network far apart. Here they agree on a moment and
wait for it, as the simulator's ranks start together. A call lasts from then to its end at the last rank.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from bench.race import Contender

#: Ranks that wake up later than this after the moment were held up by the machine.
LATE_S = 1e-3


@dataclass(frozen=True, slots=True)
class Call:
    """One call on one rank, in seconds after the moment that was agreed on: when it began, when it ended."""

    began_s: float
    ended_s: float


def rounds(contenders: Sequence[Contender], count: int, warm: int = 1) -> dict[str, list[Call]]:
    """Each contender's calls on this rank, one per round; every rank of the default group must call it.

    Args:
      contenders: in the same order on every rank.
      count: rounds that count, after `warm` that do not.
    """
    calls: dict[str, list[Call]] = {contender.side: [] for contender in contenders}
    margin_s = 0.05
    gc.collect()
    gc.disable()
    for turn in range(warm + count):
        for contender in contenders:
            moment, margin_s = _agree(margin_s)
            time.sleep(max(0.0, moment - time.monotonic()))
            began = time.monotonic()
            contender.call()
            ended = time.monotonic()
            if turn >= warm:
                calls[contender.side].append(Call(began - moment, ended - moment))
    gc.enable()
    return calls


def _agree(margin_s: float) -> tuple[float, float]:
    """A moment that no rank has passed yet, and how far ahead the next one should be."""
    asked = time.monotonic()
    moment = torch.tensor([asked + margin_s], dtype=torch.float64)
    dist.all_reduce(moment, dist.ReduceOp.MAX)
    took_s = time.monotonic() - asked
    return float(moment), min(0.5, max(0.002, 0.5 * margin_s, 1.5 * took_s))
