"""All buffers of a run that go compressed: many exchanges at once, and what is kept of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tweed.compress import Memory, Spec, Turn, Update
from tweed.exchange.checkpoint import check_same, restored, stored
from tweed.exchange.collectives import run_exchanges
from tweed.exchange.communicator import Communicator
from tweed.exchange.eager import limits_by_kind
from tweed.exchange.owners import Owners
from tweed.exchange.transfers import BufferState, exchange_buffer


class CompressedBuffers:
    """Exchanges the same buffers again and again.

    Args:
      memory: the strategy's.
      buffers: per buffer the tensors that lie in it side by side; their dtype does not matter.
      comm: the group.
      first_slot: number of the first buffer.

    Attributes:
      turns: exchanges so far, equal on all ranks; to be set where ranks have not taken part in the same ones.
    """

    def __init__(
        self,
        memory: Memory[Any],
        buffers: Sequence[Sequence[Tensor]],
        comm: Communicator,
        first_slot: int = 0,
    ) -> None:
        self._first_slot = first_slot
        self._memory = memory
        self.turns = 0
        self._comm = comm
        self._limits = limits_by_kind(comm.size)
        self.specs = [Spec(tuple(tuple(tensor.shape) for tensor in tensors)) for tensors in buffers]
        devices = [tensors[0].device for tensors in buffers]
        self._likes = [
            torch.empty(spec.numel, device=device) for spec, device in zip(self.specs, devices, strict=True)
        ]
        self.forget()

    @property
    def owners(self) -> Owners:
        """The owners of the buffers' ranges."""
        return self._comm.owners

    def _each(self, values: Sequence[Tensor]) -> Iterator[tuple[Turn, BufferState, Tensor]]:
        owners = self.owners
        rank, size = owners.contributor, owners.contributors
        buffers = zip(self.specs, self.buffers, values, strict=True)
        for slot, (spec, buffer, value) in enumerate(buffers, start=self._first_slot):
            yield Turn(spec, self.turns, slot, rank, size), buffer, value

    def pending_norm(self, values: Sequence[Tensor]) -> float:
        """Length of what this rank would send in `exchange`, as its memory has it."""
        memory: Any = self._memory  # which can measure it: the strategy was checked
        return math.sqrt(sum(memory.pending(value, buffer.state) for _, buffer, value in self._each(values)))

    @torch.no_grad()
    def exchange(self, values: Sequence[Tensor], *, silent: bool = False) -> list[Update]:
        """Exchanges one value per buffer, `[numel]` float32; they are used as scratch memory.

        All ranks must call it alike; only `silent`, to contribute nothing, may differ.

        Returns: what is to be done to the model, per buffer. It lies in memory that the next exchange reuses.
        """
        exchanges = [
            exchange_buffer(buffer, value, turn, silent) for turn, buffer, value in self._each(values)
        ]
        self.turns += 1
        return run_exchanges(exchanges, self._comm, self._limits)

    def forget(self) -> None:
        """Begins anew: no state is kept. The count of exchanges goes on."""
        pairs = zip(self.specs, self._likes, strict=True)
        self.buffers = [BufferState.start(self._memory, spec, like, self.owners) for spec, like in pairs]

    def state(self) -> dict[str, Any]:
        """For a checkpoint: plain values and tensors."""
        return {"turns": self.turns, "buffers": [stored(buffer) for buffer in self.buffers]}

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from the `state` of another run. Raises UsageError if its buffers were others."""
        check_same(len(state["buffers"]) == len(self.buffers))
        self.turns = state["turns"]
        self.forget()
        self.buffers = [
            restored(buffer, kept) for buffer, kept in zip(self.buffers, state["buffers"], strict=True)
        ]
