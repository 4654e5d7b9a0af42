"""Sums of gradients in pieces, in an order that one rank plans for all from what it measures."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import cast

import torch
import torch.distributed as dist

from tweed.exchange.bucket import Bucket, GradientBucket
from tweed.exchange.cadence_driver import CadenceDriver
from tweed.exchange.communicator import Communicator
from tweed.exchange.deferred_gradients import DeferredGradients
from tweed.exchange.piece_sums import PieceSums
from tweed.order import GradientOrder, Setting
from tweed.order.piece_list import EVERY, Measured, PieceList, Planner, count


class PlannedGradients(DeferredGradients):
    """Each bucket is summed in pieces, which begin as a list says. There is a new one every few exchanges.

    Values are equal to those of `SummedGradients` to rounding, and bit for bit at two ranks.

    Args:
      order: of one rank's gradients, which all keep to.
    """

    def __init__(
        self, buckets: list[GradientBucket], comm: Communicator, cadence: CadenceDriver, order: GradientOrder
    ) -> None:
        super().__init__(buckets, comm, cadence)
        by_layer = [one.bucket for one in reversed(buckets)]  # as the forward pass reads them
        self._sizes = [bucket.flat.nbytes for bucket in by_layer]
        self._device = by_layer[0].flat.device
        self._planner = Planner(order, self._sizes) if comm.rank == comm.owners.first else None
        self._sums = PieceSums(by_layer, comm.start_mean, time.monotonic)
        self._sums.keep_to(PieceList.first(order.setting, self._sizes))
        self._exchanges = 0
        self._began_s = 0.0
        self._ready_s = [0.0] * len(by_layer)

    def wanted(self) -> bool:
        wanted = super().wanted()
        if wanted:
            self._measure()
            # A first one soon, then each when the planner has measured as many steps as a trial has.
            if self._exchanges == 1 or (self._exchanges and self._exchanges % EVERY == 0):
                self._sums.keep_to(self._agree())
            self._exchanges += 1
        return wanted

    def start(self, gradients: GradientBucket) -> None:
        self._ready_s[-1 - self.buckets.index(gradients)] = time.monotonic() - self._began_s
        super().start(gradients)

    def _begin(self, bucket: Bucket) -> dist.Work:
        return cast(dist.Work, self._sums.offer(bucket))

    def _measure(self) -> None:
        """The planner takes note of the step that ends here."""
        now = time.monotonic()
        if self._planner is not None and self._sums.busy_s > 0:
            rate = self._sums.bytes_summed / self._sums.busy_s
            self._planner.take(Measured(tuple(self._ready_s), rate, now - self._began_s))
        self._began_s = now

    def _agree(self) -> PieceList:
        """The list of all ranks from now on, which the first that has data makes."""
        setting, places = (Setting(0, 0), []) if self._planner is None else self._planner.next()
        setting = Setting(*self._from_planner(setting))
        pieces = count(self._sizes, setting.piece_bytes)
        return PieceList.of(setting, self._from_planner(places or [0] * pieces), self._sizes)

    def _from_planner(self, numbers: Iterable[int]) -> list[int]:
        told = torch.tensor([*numbers], device=self._device)
        self._comm.receive(self._comm.broadcast([told]))
        return cast("list[int]", told.tolist())
