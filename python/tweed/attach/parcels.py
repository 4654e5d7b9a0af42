"""All buffers of a run that go compressed, and what is kept of each from one exchange to the next."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tweed.attach.carry import carry
from tweed.attach.flight import Luggage, flight, pack
from tweed.attach.stored import check_same, restored, stored
from tweed.attach.wire import Wire
from tweed.compress import Memory, Placed, Spec, Turn


class Parcels:
    """Exchanges the same buffers again and again.

    Args:
      memory: the strategy's.
      buffers: per buffer the tensors that lie in it side by side; their dtype does not matter.
      wire: the group.
      first_slot: number of the first buffer.
    """

    def __init__(
        self, memory: Memory[Any], buffers: Sequence[Sequence[Tensor]], wire: Wire, first_slot: int = 0
    ) -> None:
        self._first_slot = first_slot
        self._memory = memory
        self._turns = 0  # exchanges so far, equal on all ranks
        self._wire = wire
        self._specs = [Spec(tuple(tuple(tensor.shape) for tensor in tensors)) for tensors in buffers]
        devices = [tensors[0].device for tensors in buffers]
        self._likes = [
            torch.empty(spec.numel, device=device) for spec, device in zip(self._specs, devices, strict=True)
        ]
        self._luggage = self._pack()

    def _pack(self) -> list[Luggage]:
        pairs = zip(self._specs, self._likes, strict=True)
        return [pack(self._memory, spec, like) for spec, like in pairs]

    def _each(self, values: Sequence[Tensor]) -> Iterator[tuple[Turn, Luggage, Tensor]]:
        rank, size = self._wire.rank, self._wire.size
        buffers = zip(self._specs, self._luggage, values, strict=True)
        for slot, (spec, luggage, value) in enumerate(buffers, start=self._first_slot):
            yield Turn(spec, self._turns, slot, rank, size), luggage, value

    def weigh(self, values: Sequence[Tensor]) -> float:
        """Length of what this rank would say in `exchange`, as its memory has it."""
        memory: Any = self._memory  # which can weigh: the strategy was checked
        each = (memory.pending(value, luggage.state) for _, luggage, value in self._each(values))
        return math.sqrt(sum(each))

    @torch.no_grad()
    def exchange(self, values: Sequence[Tensor], *, silent: bool = False) -> list[Placed]:
        """Exchanges one value per buffer, `[numel]` float32; they are used as scratch memory.

        All ranks must call it alike; only `silent`, to contribute nothing, may differ.

        Returns: what is to be done to the model, per buffer. It lies in memory that the next exchange reuses.
        """
        flights = [flight(luggage, value, turn, silent) for turn, luggage, value in self._each(values)]
        self._turns += 1
        return carry(flights, self._wire)

    def forget(self) -> None:
        """Begins anew: nothing is remembered. The count of exchanges goes on."""
        self._luggage = self._pack()

    def state(self) -> dict[str, Any]:
        """For a checkpoint: plain values and tensors."""
        return {"turns": self._turns, "luggage": [stored(luggage) for luggage in self._luggage]}

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from the `state` of another run. Raises UsageError if its buffers were others."""
        check_same(len(state["luggage"]) == len(self._luggage))
        self._turns = state["turns"]
        self.forget()
        self._luggage = [
            restored(luggage, kept, turn)
            for (turn, luggage, _), kept in zip(self._each(self._likes), state["luggage"], strict=True)
        ]
