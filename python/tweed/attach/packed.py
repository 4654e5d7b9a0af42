"""Exchange of gradients that go compressed: when the backward pass ends, all buckets at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import Parameter

from tweed.attach.bucket import Bucket, room
from tweed.attach.gradient import GradientExchange, Load
from tweed.attach.parcels import Parcels
from tweed.attach.wire import Wire
from tweed.compress import Memory


class PackedGradientExchange(GradientExchange):
    """As `GradientExchange`, but each bucket goes through a memory and its compressors.

    Args:
      params, wire, bucket_bytes, wanted: as there.
      memory: the strategy's.
    """

    def __init__(
        self,
        params: Mapping[str, Parameter],
        wire: Wire,
        bucket_bytes: int,
        wanted: Callable[[], bool],
        memory: Memory[Any],
    ) -> None:
        super().__init__(params, wire, bucket_bytes, wanted)
        self._factor = wire.factor * wire.size  # a flight divides by the number of ranks
        self.parcels = Parcels(memory, [load.params for load in self._loads], wire)

    def _load(self, params: list[Parameter]) -> Load:
        flat = torch.empty(room(params), dtype=params[0].dtype, device=params[0].device)
        return Load(params, Bucket(flat, params))

    def _start(self, load: Load) -> None:
        """Nothing: what is known at the end of the backward pass decides."""

    def _take_all(self) -> None:
        placed = self.parcels.exchange([load.bucket.flat.float() for load in self._loads])
        for load, one in zip(self._loads, placed, strict=True):
            load.bucket.flat.copy_(one.advance)
            _show(load)


def _show(load: Load) -> None:
    """Gives a gradient to parameters that had none here, and of which the others said something."""
    for index in load.missing():
        view = load.bucket.views[index]
        if view.any():
            load.params[index].grad = view
