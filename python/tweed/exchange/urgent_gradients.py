"""Sums of gradients, of which the engine lets those leave first that are needed first."""

from __future__ import annotations

from contextlib import suppress

from tweed.errors import UsageError
from tweed.exchange import engine
from tweed.exchange.bucket import Bucket, GradientBucket
from tweed.exchange.cadence_driver import CadenceDriver
from tweed.exchange.communicator import Communicator
from tweed.exchange.deferred_gradients import DeferredGradients


class UrgentGradients(DeferredGradients):
    """Sums that overtake each other.

    Where buckets wait for one link, the one leaves first that has started last: its parameters are those that
    the next forward pass reads first. All leave after what has no urgency, such as buffers. Groups of other
    backends than "tweed", and accelerators, send them as they start.
    """

    def __init__(self, buckets: list[GradientBucket], comm: Communicator, cadence: CadenceDriver) -> None:
        super().__init__(buckets, comm, cadence)
        self._engine: engine.LossReports | None = None
        if len(buckets) > 1:
            with suppress(UsageError):  # of another backend
                self._engine = engine.loss_reports(comm.group)
        self._urgency = {one.bucket: urgency for urgency, one in enumerate(buckets, -len(buckets))}
        for bucket, urgency in self._urgency.items():
            self._set_urgency(bucket, urgency)

    def _set_urgency(self, bucket: Bucket, urgency: int) -> None:
        if self._engine is not None and bucket.flat.device.type == "cpu":
            self._engine.set_urgency(bucket.flat.data_ptr(), bucket.flat.nbytes, urgency)

    def renew(self, bucket: Bucket) -> None:
        self._set_urgency(bucket, 0)
        super().renew(bucket)
        self._set_urgency(bucket, self._urgency[bucket])

    def close(self) -> None:
        """Other tensors may get the memory of the buckets later: it has no urgency any more."""
        for bucket in self._urgency:
            self._set_urgency(bucket, 0)
