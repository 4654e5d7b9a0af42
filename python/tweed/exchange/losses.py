"""What the transport loses of a rank's contributions: counted, and added to the next ones.

    sent = contribution + residual        what goes out
    sent = delivered + lost               value by value, one of the two is zero
    residual = lost                       what is added next time

So of all that was contributed, each value has either been applied or is in a residual: nothing is destroyed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from tweed.errors import UsageError
from tweed.exchange.bucket import Bucket
from tweed.exchange.engine import Delivery, LossReports

_KEPT_STEPS = 10_000


class Residual:
    """What one rank's contributions to one bucket have lost and not yet returned.

    Args:
      bucket: on the CPU.

    Attributes:
      values: `[numel]`, same dtype: to be added to the next contribution.
    """

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._any = False  # so that a network that loses nothing costs no pass over the buffer
        self.values = torch.zeros_like(bucket.flat)

    def add_to_contribution(self, scale: float) -> None:
        """Adds the residual times `scale` to the buffer, which is to be sent now, and clears it."""
        if self._any:
            self._bucket.flat.add_(self.values, alpha=scale)
            self.values.zero_()
            self._any = False

    def take_back(self, address: int, values: bytes) -> bool:
        """Keeps `values`, which were at `address` when they were sent. False if that is not in the buffer."""
        flat = self._bucket.flat
        width = flat.element_size()
        first = (address - flat.data_ptr()) // width
        count = len(values) // width
        if not 0 <= first <= flat.numel() - count:
            return False
        self.values[first : first + count] += torch.frombuffer(bytearray(values), dtype=flat.dtype)
        self._any = True
        return True

    def has_part_of(self, view: Tensor) -> bool:
        """Whether there is anything of `view`, a dense view into the buffer."""
        if not self._any:
            return False
        first = view.storage_offset() - self._bucket.flat.storage_offset()
        return bool(self.values[first : first + view.numel()].any())

    def load(self, values: Tensor) -> None:
        """Goes on from the `values` of another run."""
        self.values.copy_(values)
        self._any = bool(values.any())


@dataclass(frozen=True, slots=True)
class Delivered:
    """How much of the contributions of one step arrived, as far as this rank has sent or received them.

    Attributes:
      step: optimizer steps taken before.
      by_rank: for each other rank, bytes of contributions to and from it, and how many of them were lost.
    """

    step: int
    by_rank: dict[int, tuple[int, int]]

    def shares(self) -> dict[int, float]:
        """The share that arrived of the contributions to and from each other rank; 1.0 where nothing was
        sent."""
        return {rank: 1 - lost / sent if sent else 1.0 for rank, (sent, lost) in self.by_rank.items()}


def merged(step: int, deliveries: Sequence[Delivery | Delivered]) -> Delivered:
    """The deliveries of one step as one."""
    total: dict[int, tuple[int, int]] = {}
    for delivery in deliveries:
        for rank, (sent, lost) in delivery.by_rank.items():
            before = total.get(rank, (0, 0))
            total[rank] = (before[0] + sent, before[1] + lost)
    return Delivered(step, dict(sorted(total.items())))


class Losses:
    """What the group loses: residuals of all buckets of one rank, and a record of what arrived.

    Args:
      reports: of the group that loses.
      returned: whether what is lost is added to the next contribution.

    Attributes:
      record: per exchange what arrived, the last 10,000.
    """

    def __init__(self, reports: LossReports, *, returned: bool) -> None:
        self._reports = reports
        self._returned = returned
        self._residuals: dict[Bucket, Residual] = {}
        self._taken: list[Delivery] = []  # of the exchange under way
        self.record: deque[Delivered] = deque(maxlen=_KEPT_STEPS)

    def add(self, bucket: Bucket) -> None:
        """From now on `bucket` is exchanged. Its marks never get lost."""
        self._keep_marks(bucket, bucket.marks.nbytes)
        if self._returned:
            self._residuals[bucket] = Residual(bucket)

    def lay(self, bucket: Bucket, flat: Tensor) -> None:
        """`bucket`, one of these, moves to the memory `flat`."""
        self._keep_marks(bucket, 0)
        bucket.lay(flat)
        self._keep_marks(bucket, bucket.marks.nbytes)

    def _keep_marks(self, bucket: Bucket, bytes: int) -> None:
        if bucket.marks.numel():
            self._reports.keep_whole(bucket.marks.data_ptr(), bytes)

    @contextmanager
    def whole(self, tensors: Iterable[Tensor]) -> Iterator[None]:
        """Within, contributions from `tensors` lose nothing."""
        with _declared(self._reports.keep_whole, tensors):
            yield

    @contextmanager
    def contributions(self, sent: Tensor, received: Tensor) -> Iterator[None]:
        """Within, all-to-alls from `sent` to `received` may lose parts."""
        with _declared(self._reports.may_lose, [sent, received]):
            yield

    def take(self) -> list[Delivery]:
        """What operations that have ended since the last call lost: of packets, not of buckets."""
        taken = list(self._reports.take_deliveries())
        self._taken += taken
        return taken

    def add_residual(self, bucket: Bucket, scale: float = 1.0) -> None:
        """Adds what was lost before, times `scale`, to `bucket`, whose exchange begins."""
        if bucket in self._residuals:
            self._residuals[bucket].add_to_contribution(scale)

    def has_residual(self, bucket: Bucket, index: int) -> bool:
        """Whether there is a residual of the tensor at `index` of `bucket`."""
        return bucket in self._residuals and self._residuals[bucket].has_part_of(bucket.views[index])

    def end_exchange(self, step: int) -> tuple[int, int]:
        """Takes back what was lost. Returns bytes contributed by this rank, and lost."""
        rest = self._reports.take_deliveries()
        for delivery in rest:
            for address, values in delivery.lost if self._returned else ():
                self._take_back(address, values)
        deliveries, self._taken = [*self._taken, *rest], []
        self.record.append(merged(step, deliveries))
        return sum(one.sent_bytes for one in deliveries), sum(one.lost_bytes for one in deliveries)

    def _take_back(self, address: int, values: bytes) -> None:
        if not any(residual.take_back(address, values) for residual in self._residuals.values()):
            raise UsageError(
                f"{len(values)} bytes at {address:#x} were lost, and are in no bucket of this run: the group "
                "that attach made is for its exchanges alone"
            )

    def state(self) -> list[Tensor]:
        """The residuals, per bucket, for a checkpoint."""
        return [residual.values.clone() for residual in self._residuals.values()]

    def load(self, kept: list[Tensor]) -> None:
        """Goes on from the `state` of another run. Raises UsageError if its buckets were others."""
        mine = list(self._residuals.values())
        if [values.shape for values in kept] != [residual.values.shape for residual in mine]:
            raise UsageError("the stored state has buckets of other sizes: is bucket_bytes the same?")
        for residual, values in zip(mine, kept, strict=True):
            residual.load(values)


@contextmanager
def _declared(declare: Callable[[int, int], None], tensors: Iterable[Tensor]) -> Iterator[None]:
    declared = [tensor for tensor in tensors if tensor.numel()]
    for tensor in declared:
        declare(tensor.data_ptr(), tensor.nbytes)
    try:
        yield
    finally:
        for tensor in declared:
            declare(tensor.data_ptr(), 0)
