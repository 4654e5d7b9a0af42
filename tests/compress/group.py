"""All ranks of a group in one process, which exchange one buffer again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tweed.aggregate import Mean
from tweed.compress import Memory, Spec, Turn, Update
from tweed.exchange.owners import Owners
from tweed.exchange.transfers import BufferState, exchange_buffer
from tweed.simulate.exchanges import PacketLoss, VirtualNetwork


class Group:
    """`size` ranks with a memory each.

    Args:
      owners: as rank 0 sees them; by default every rank owns a share.
      loss: of the network between them.

    Attributes:
      traffic: of all exchanges so far.
    """

    def __init__(
        self,
        memory: Memory[Any],
        spec: Spec,
        size: int,
        owners: Owners | None = None,
        loss: PacketLoss | None = None,
    ) -> None:
        self.spec, self.size, self.step = spec, size, 0
        owners = owners or Owners(0, size, Mean())
        self.owners = [replace(owners, rank=rank) for rank in range(size)]
        self.buffers: list[BufferState] = [
            BufferState.start(memory, spec, torch.zeros(spec.numel), mine) for mine in self.owners
        ]
        self.network = VirtualNetwork(owners, loss)
        self.traffic = self.network.traffic

    def exchange(self, values: Sequence[Tensor], silent: Sequence[bool] = ()) -> list[Update]:
        """What is to be done to each rank's model, in memory of its own. `values` stay as they are."""
        quiet = silent or [False] * self.size
        exchanges = []
        for rank, value in enumerate(values):
            owners = self.owners[rank]
            turn = Turn(self.spec, self.step, 0, owners.contributor, owners.contributors)
            exchanges.append(exchange_buffer(self.buffers[rank], value.clone(), turn, quiet[rank]))
        self.step += 1
        return [_own(placed) for placed in self.network.run(exchanges)]


def _own(placed: Update) -> Update:
    offset = None if placed.offset is None else placed.offset.clone()
    return replace(placed, delta=placed.delta.clone(), offset=offset)
