"""Exchange of gradients that go compressed: when the backward pass ends, all buckets at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import Parameter

from tweed.attach.bucket import Bucket, room
from tweed.attach.finite import Told, tell
from tweed.attach.gradient import GradientExchange, Load
from tweed.attach.pace import Pace
from tweed.attach.pilot import make_parcels
from tweed.attach.wire import Wire
from tweed.cadence import Ready
from tweed.compress import Memory
from tweed.errors import NonFinite


class PackedGradientExchange(GradientExchange):
    """As `GradientExchange`, but each bucket goes through a memory and its compressors.

    A gradient that is not finite on some rank becomes NaN on all, and all others zero: see `finite`.

    Args:
      params, wire, bucket_bytes: as there.
      pace: when to exchange, and whether this rank speaks then.
      memory: the strategy's.
    """

    def __init__(
        self,
        params: Mapping[str, Parameter],
        wire: Wire,
        bucket_bytes: int,
        pace: Pace,
        memory: Memory[Any],
    ) -> None:
        super().__init__(params, wire, bucket_bytes, lambda: pace.weighs or pace.decide())
        self._factor = wire.factor * wire.size  # a flight divides by the number of ranks
        self._pace = pace
        self._parcels = make_parcels(memory, [load.params for load in self._loads], wire)
        self._trouble: NonFinite | None = None

    def _load(self, params: list[Parameter]) -> Load:
        flat = torch.empty(room(params), dtype=params[0].dtype, device=params[0].device)
        return Load(params, Bucket(flat, params))

    def _start(self, load: Load) -> None:
        """Nothing goes out before all gradients are there, and known to be finite."""

    def _take_all(self) -> None:
        given = [[param in load.placed for param in load.params] for load in self._loads]
        told = tell([load.bucket for load in self._loads], given, self._wire)
        self._trouble = told.error([[self._names[param] for param in load.params] for load in self._loads])
        if self._trouble is None:
            self._exchange_values()
        else:
            self._spoil(told)
        for load, anybody in zip(self._loads, told.given, strict=True):
            show(load, anybody)

    def _exchange_values(self) -> None:
        values = [load.bucket.numbers.float() for load in self._loads]
        if self._pace.weighs:
            self._pace.tell(Ready(self._parcels.weigh(values)))
            self._pace.decide()
        placed = self._parcels.exchange(values, silent=self._pace.silent)
        for load, one in zip(self._loads, placed, strict=True):
            load.bucket.numbers.copy_(one.advance)

    def _spoil(self, told: Told) -> None:
        for load, bad in zip(self._loads, told.bad, strict=True):
            load.bucket.numbers.zero_()
            for view, rank in zip(load.bucket.views, bad, strict=True):
                if rank is not None:
                    view.fill_(math.nan)

    def state(self) -> dict[str, Any]:
        """For a checkpoint: plain values and tensors."""
        return {"parcels": self._parcels.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from the `state` of another run. Raises UsageError if its buckets were others."""
        self._parcels.load(state["parcels"])

    def check_finite(self) -> None:
        """Raises NonFinite if gradients of the last exchange were not finite, and still are not."""
        trouble, self._trouble = self._trouble, None
        if trouble is not None and not all(load.bucket.numbers.isfinite().all() for load in self._loads):
            raise trouble


def show(load: Load, given: list[bool]) -> None:
    """Gives a gradient to parameters that had none here, if others gave one or something was still owed."""
    for index in load.missing():
        view = load.bucket.views[index]
        if given[index] or view.any():
            load.params[index].grad = view
