"""All buffers of a run that go compressed, and what is kept of each from one exchange to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tweed.attach.carry import carry
from tweed.attach.flight import flight, pack
from tweed.attach.wire import Wire
from tweed.compress import Memory, Placed, Spec, Turn


class Parcels:
    """Exchanges the same buffers again and again.

    Args:
      memory: the strategy's.
      buffers: per buffer the tensors that lie in it side by side; their dtype does not matter.
      wire: the group.

    Attributes:
      turns: exchanges so far, equal on all ranks.
    """

    def __init__(self, memory: Memory[Any], buffers: Sequence[Sequence[Tensor]], wire: Wire) -> None:
        self.turns = 0
        self._wire = wire
        self._specs = [Spec(tuple(tuple(tensor.shape) for tensor in tensors)) for tensors in buffers]
        likes = [
            tensors[0].new_empty(spec.numel, dtype=torch.float32)
            for tensors, spec in zip(buffers, self._specs, strict=True)
        ]
        self._luggage = [pack(memory, spec, like) for spec, like in zip(self._specs, likes, strict=True)]

    def exchange(self, values: Sequence[Tensor], *, silent: bool = False) -> list[Placed]:
        """Exchanges one value per buffer, `[numel]` float32; they are used as scratch memory.

        All ranks must call it alike; only `silent`, to contribute nothing, may differ.

        Returns: what is to be done to the model, per buffer. It lies in memory that the next exchange reuses.
        """
        flights = []
        for slot, (luggage, spec, value) in enumerate(zip(self._luggage, self._specs, values, strict=True)):
            turn = Turn(spec, self.turns, slot, self._wire.rank, self._wire.size)
            flights.append(flight(luggage, value, turn, silent))
        self.turns += 1
        return carry(flights, self._wire)
