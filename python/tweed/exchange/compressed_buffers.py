"""All buffers of a run that go compressed: many exchanges at once, and what is kept of them."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeVar

import torch
from torch import Tensor

from tweed.compress import Memory, Spec, Turn, Update
from tweed.exchange.checkpoint import check_same, restored, stored
from tweed.exchange.collectives import run_exchanges
from tweed.exchange.communicator import Communicator
from tweed.exchange.eager import limits_by_kind
from tweed.exchange.owners import Owners
from tweed.exchange.pending import Pending
from tweed.exchange.transfers import BufferExchange, BufferState, Transfer, exchange_buffer, nothing_sent

T = TypeVar("T")


class CompressedBuffers:
    """Exchanges the same buffers again and again.

    Args:
      memory: the strategy's.
      buffers: per buffer the tensors that lie in it side by side; their dtype does not matter.
      comm: the group.
      first_slot: number of the first buffer.

    Attributes:
      comm: the group.
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
        self.comm = comm
        self._limits = limits_by_kind(comm.size, comm.tag())
        self.specs = [Spec(tuple(tuple(tensor.shape) for tensor in tensors)) for tensors in buffers]
        devices = [tensors[0].device for tensors in buffers]
        self._likes = [
            torch.empty(spec.numel, device=device) for spec, device in zip(self.specs, devices, strict=True)
        ]
        self.forget()

    @property
    def owners(self) -> Owners:
        """The owners of the buffers' ranges."""
        return self.comm.owners

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
    def exchange(self, values: Sequence[Tensor], *, silent: bool = False) -> Pending[list[Update]]:
        """Exchanges one value per buffer, `[numel]` float32; they are used as scratch memory. Pauses while
        something is under way.

        All ranks must call it alike; only `silent`, to contribute nothing, may differ.

        Returns: what is to be done to the model, per buffer. It lies in memory that the next exchange reuses.
        """
        exchanges = self._exchanges(values, silent)
        self.turns += 1
        return (yield from run_exchanges(exchanges, self.comm, self._limits))

    def _exchanges(self, values: Sequence[Tensor], silent: bool) -> list[BufferExchange]:
        return [exchange_buffer(buffer, value, turn, silent) for turn, buffer, value in self._each(values)]

    @property
    def carry_flags(self) -> bool:
        """Whether flags can go in front of the first packets: each rank gets packets of all others, and no
        exchange goes on without one of them."""
        by_owners = not any(codec.sums for codec in self._memory.parts.values())
        owners, whole = self.owners, self.comm.losses is None
        return by_owners and whole and owners.server is None and not owners.can_do_without(1)

    @torch.no_grad()
    def exchange_behind(
        self, first: Generator[Transfer, Any, T], values: Sequence[Tensor] | None, *, silent: bool = False
    ) -> Pending[tuple[T, list[Update]]]:
        """As `exchange`, with the transfers of `first` in front. That may raise when it gets an answer, at
        all ranks alike: then all that is kept is as it was.

        Args:
          values: None: this rank sends nothing, and `first` will raise.

        Returns: what `first` does, and the updates.
        Cost: a copy of what memory and codec keep.
        """
        kept = [(buffer.state, buffer.parts) for buffer in self.buffers]
        try:
            if values is None:
                exchanges = [nothing_sent(like, self.comm.size) for like in self._likes]
            else:
                for buffer in self.buffers:
                    buffer.state, buffer.parts = deepcopy((buffer.state, buffer.parts))
                exchanges = self._exchanges(values, silent)
            found: list[Any] = yield from run_exchanges([first, *exchanges], self.comm, self._limits)
        except BaseException:
            for buffer, (state, parts) in zip(self.buffers, kept, strict=True):
                buffer.state, buffer.parts = state, parts
            raise
        self.turns += 1
        return found[0], found[1:]

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
