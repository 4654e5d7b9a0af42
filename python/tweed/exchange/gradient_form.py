"""In which form a rank sends its gradient by itself, to one who keeps what it has sent.

As it is; or, with a memory, as the compressed difference to what the other holds. Both ends add what was
sent, so that they hold the same. With `LazyAggregation` what a packet leaves out is in the next difference;
else both hold zero before each message.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from tweed.compress import (
    Compressor,
    Direct,
    Entries,
    ErrorFeedback,
    LazyAggregation,
    LocalResidual,
    Spec,
    Turn,
    Values,
    unpack,
)
from tweed.compress.packet import HEADER_BYTES
from tweed.errors import DataError


class GradientForm:
    """In which form gradients are sent.

    Args:
      memory: the strategy's; None: as they are.
      spec: of all gradients, side by side.
      worker: whose. Nobody adds packets up, so each may hold all that its form can: the turn has size 1.
    """

    def __init__(
        self,
        memory: LazyAggregation | Direct | ErrorFeedback | LocalResidual | None,
        spec: Spec,
        worker: int,
    ) -> None:
        codec = None if memory is None else memory.compressor
        assert isinstance(codec, Compressor | None)  # the strategy was checked
        self._codec = codec
        self._turn = Turn(spec, rank=worker)
        self.state = None if codec is None else codec.start(spec)

    @property
    def most_bytes(self) -> int:
        """No message is longer: an index and a value of each, and scales as long as those."""
        return HEADER_BYTES + 12 * self._turn.spec.numel

    def encode(self, gradient: Tensor, last: Tensor, step: int) -> Tensor:
        """Encodes `gradient` for a process that holds `last`, which becomes what that process holds then."""
        if self._codec is None:
            last.copy_(gradient)
            return last.view(torch.uint8)
        turn = replace(self._turn, step=step)
        packet, self.state = self._codec.encode(gradient - last, self.state, turn)
        packet.add_to(last)
        if not self._codec.sums:
            return packet.pack()
        assert isinstance(packet, Values)  # the contract of `sums`
        return packet.values.contiguous().view(torch.uint8)

    def decode(self, data: Tensor, last: Tensor, step: int) -> None:
        """The inverse: `last` becomes what came. Raises DataError if that is no gradient."""
        if self._codec is None:
            last.copy_(_floats(data, last))
        elif self._codec.sums:  # values alone; where they belong is the same on all ranks
            layout = self._layout(step)
            replace(layout, values=_floats(data, layout.values)).add_to(last)
        elif (packet := unpack(data, len(last))) is not None:
            packet.add_to(last)

    def absent(self, data: Tensor, step: int) -> Tensor | None:
        """Where a message that can be decoded has no value: `[numel]` bool; None: nowhere."""
        there = torch.zeros(self._turn.spec.numel)
        if self._codec is None:
            return None
        if self._codec.sums:
            layout = self._layout(step)
            replace(layout, values=torch.ones_like(layout.values)).add_to(there)
        elif isinstance(packet := unpack(data, len(there)), Entries):
            there[packet.indices.long()] = 1
        elif packet is not None:
            return None
        return there == 0

    def _layout(self, step: int) -> Values:
        """Where values belong of a form that sends them alone."""
        assert self._codec is not None  # the caller looked
        turn = replace(self._turn, step=step)
        zeros = torch.zeros(turn.spec.numel)
        layout, _ = self._codec.encode(zeros, self._codec.start(turn.spec), turn)
        assert isinstance(layout, Values)  # the contract of `sums`
        return layout


def _floats(data: Tensor, like: Tensor) -> Tensor:
    if data.numel() != like.nbytes:
        raise DataError(f"{data.numel()} bytes came in for {len(like)} values of {like.dtype}")
    return data.view(like.dtype)
