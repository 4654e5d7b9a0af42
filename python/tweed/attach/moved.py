"""Exchange of how far parameters have moved, compressed, between optimizer steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tweed.attach.bucket import Bucket, assign, item, room
from tweed.attach.model import ModelExchange
from tweed.attach.parcels import Parcels
from tweed.attach.wire import Wire
from tweed.compress import Memory, Placed
from tweed.errors import UsageError


class MovementExchange:
    """Exchanges `parameter - reference`: the reference is where this rank stood after the last exchange.

    Args:
      params: the parameters.
      rest: exchanges all else that is averaged, such as the statistics of batch norm, as it is.
      wire: the group.
      bucket_bytes: size of a full bucket.
      memory: the strategy's.

    Attributes:
      anchor: the references, `[numel]` float32 per bucket.

    Cost: memory for the references, the values and an average: three models in float32, beside what the
      memory keeps.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        rest: ModelExchange | None,
        wire: Wire,
        bucket_bytes: int,
        memory: Memory[Any],
    ) -> None:
        self._params = [param.detach() for param in params]
        self._rest = rest
        self._wire = wire
        members = assign([item(param) for param in self._params], bucket_bytes)
        self._groups = [[self._params[index] for index in bucket] for bucket in members]
        self._moved = [_bucket(group) for group in self._groups]
        self._stood = [_bucket(group) for group in self._groups]
        self.parcels = Parcels(memory, self._groups, wire)
        for group, stood in zip(self._groups, self._stood, strict=True):
            for param, view in zip(group, stood.views, strict=True):
                view.copy_(param)

    @property
    def anchor(self) -> list[Tensor]:
        """See above."""
        return [stood.flat for stood in self._stood]

    @torch.no_grad()
    def exchange(self) -> None:
        """Exchanges, and puts parameters where the memory says. Waits for it."""
        for group, moved, stood in zip(self._groups, self._moved, self._stood, strict=True):
            for param, view, before in zip(group, moved.views, stood.views, strict=True):
                view.copy_(param).sub_(before)
        placed = self.parcels.exchange([moved.flat for moved in self._moved])
        for group, stood, one in zip(self._groups, self._stood, placed, strict=True):
            _place(group, stood, one)
        if self._rest is not None:
            self._rest.average()
        self._wire.settle()

    def load_anchor(self, saved: Sequence[Tensor]) -> None:
        """Puts the references back. Raises UsageError if they are another model's."""
        if [tensor.shape for tensor in saved] != [tensor.shape for tensor in self.anchor]:
            raise UsageError("the stored state belongs to a model of other shapes")
        for kept, tensor in zip(self.anchor, saved, strict=True):
            kept.copy_(tensor)


def _bucket(group: Sequence[Tensor]) -> Bucket:
    return Bucket(torch.empty(room(group), dtype=torch.float32, device=group[0].device), group)


def _place(group: Sequence[Tensor], stood: Bucket, placed: Placed) -> None:
    stood.flat.add_(placed.advance)
    target = stood if placed.shift is None else Bucket(stood.flat + placed.shift, group)
    for param, view in zip(group, target.views, strict=True):
        param.copy_(view)
