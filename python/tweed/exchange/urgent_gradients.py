"""Sums of gradients, each of which is waited for alone; what is needed first leaves first."""

from __future__ import annotations

from contextlib import suppress

import torch.distributed as dist

from tweed.errors import UsageError
from tweed.exchange import engine
from tweed.exchange.bucket import Bucket, GradientBucket
from tweed.exchange.cadence_driver import CadenceDriver
from tweed.exchange.communicator import Communicator
from tweed.exchange.gradients import SummedGradients


class UrgentGradients(SummedGradients):
    """As `SummedGradients`, with a wait for each bucket.

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

    def receive(self, bucket: Bucket, work: dist.Work) -> None:
        """Waits for `work`, which was started for `bucket`, alone: its views are averages then.

        Raises: as `finish`. All ranks raise then, whichever bucket each asks for first.
        """
        self._comm.wait(work)
        self._check(bucket.marks[-1])

    # Ranks hear of these when they read, amid collectives of the program: so they ask each other nothing.

    def _refusal(self, own: UsageError | None) -> UsageError:
        return own or UsageError(
            "another rank cannot take part, and nothing was exchanged: its own error says why"
        )

    def _other_steps(self) -> UsageError:
        return UsageError(
            f"ranks have taken other numbers of steps since attach, this one {self.steps_taken}, so that "
            "their models differ. Nothing was exchanged now. Let all ranks skip the same steps"
        )

    def close(self) -> None:
        """Other tensors may get the memory of the buckets later: it has no urgency any more."""
        for bucket in self._urgency:
            self._set_urgency(bucket, 0)
