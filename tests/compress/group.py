"""All ranks of a group in one process, which exchange one buffer again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tweed.compress import Memory, Spec, Turn, Update
from tweed.exchange.transfers import BufferState, exchange_buffer
from tweed.simulate.exchanges import Traffic, run_exchanges


class Group:
    """`size` ranks with a memory each.

    Attributes:
      traffic: of all exchanges so far.
    """

    def __init__(self, memory: Memory[Any], spec: Spec, size: int) -> None:
        self.spec, self.size, self.step = spec, size, 0
        self.buffers: list[BufferState] = [
            BufferState.start(memory, spec, torch.zeros(spec.numel)) for _ in range(size)
        ]
        self.traffic = Traffic(size)

    def exchange(self, values: Sequence[Tensor], silent: Sequence[bool] = ()) -> list[Update]:
        """What is to be done to each rank's model, in memory of its own. `values` stay as they are."""
        quiet = silent or [False] * self.size
        exchanges = []
        for rank, value in enumerate(values):
            turn = Turn(self.spec, self.step, 0, rank, self.size)
            exchanges.append(exchange_buffer(self.buffers[rank], value.clone(), turn, quiet[rank]))
        self.step += 1
        return [_own(placed) for placed in run_exchanges(exchanges, self.traffic)]


def _own(placed: Update) -> Update:
    offset = None if placed.offset is None else placed.offset.clone()
    return replace(placed, delta=placed.delta.clone(), offset=offset)
