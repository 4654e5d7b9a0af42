"""What the transport loses of the exchanges of a run: counted, and returned to the next exchange."""

from __future__ import annotations

from collections import deque

from torch import Tensor

from tweed.attach.bucket import Bucket
from tweed.attach.lines import Lossy
from tweed.attach.residual import Delivered, Residual, together
from tweed.errors import UsageError

_KEPT_STEPS = 10_000


class Losses:
    """Residuals of all buckets of one rank, and a record of what arrived.

    Args:
      engine: the group that loses and tells of it.
      returned: whether what is lost is added to the next contribution.

    Attributes:
      record: per exchange what arrived, the last 10,000.
    """

    def __init__(self, engine: Lossy, *, returned: bool) -> None:
        self._engine = engine
        self._returned = returned
        self._residuals: dict[Bucket, Residual] = {}
        self.record: deque[Delivered] = deque(maxlen=_KEPT_STEPS)

    def add(self, bucket: Bucket) -> None:
        """From now on `bucket` is exchanged. Its marks never get lost."""
        if marks := bucket.marks.numel():
            self._engine.keep_whole(bucket.marks.data_ptr(), marks * bucket.marks.element_size())
        if self._returned:
            self._residuals[bucket] = Residual(bucket.flat)

    def give(self, bucket: Bucket) -> None:
        """Adds what is owed to `bucket`, whose exchange begins."""
        if bucket in self._residuals:
            self._residuals[bucket].give()

    def owes(self, bucket: Bucket, index: int) -> bool:
        """Whether anything is owed of the tensor at `index` of `bucket`."""
        return bucket in self._residuals and self._residuals[bucket].owes(bucket.views[index])

    def settle(self, step: int) -> tuple[int, int]:
        """Ends an exchange: takes back what was lost. Returns bytes contributed by this rank, and lost."""
        deliveries = self._engine.take_deliveries()
        for delivery in deliveries:
            for address, values in delivery.lost if self._returned else ():
                self._take_back(address, values)
        self.record.append(together(step, deliveries))
        return sum(told.sent_bytes for told in deliveries), sum(told.lost_bytes for told in deliveries)

    def _take_back(self, address: int, values: bytes) -> None:
        if not any(residual.take_back(address, values) for residual in self._residuals.values()):
            raise UsageError(
                f"{len(values)} bytes at {address:#x} were lost, and are in no bucket of this run: the group "
                "that attach made is for its exchanges alone"
            )

    def state(self) -> list[Tensor]:
        """What is owed, per bucket, for a checkpoint."""
        return [residual.owed.clone() for residual in self._residuals.values()]

    def load(self, owed: list[Tensor]) -> None:
        """Goes on from the `state` of another run. Raises UsageError if its buckets were others."""
        mine = list(self._residuals.values())
        if [kept.shape for kept in owed] != [residual.owed.shape for residual in mine]:
            raise UsageError("the stored state has buckets of other sizes: is bucket_bytes the same?")
        for residual, kept in zip(mine, owed, strict=True):
            residual.load(kept)
