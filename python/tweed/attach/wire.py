"""The group as the exchanges see it: start, wait, count."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.aggregate import Aggregate
from tweed.attach.bucket import Bucket, assign, item, room
from tweed.errors import StrategyError
from tweed.torch import plan_json


@dataclass(slots=True)
class Stats:
    """What a `Run` has done so far.

    Attributes:
      steps: optimizer steps taken.
      exchanges: how often ranks exchanged all they had to.
      bytes_exchanged: bytes of this rank's buffers that went into exchanges. How many crossed a link is up to
        the
        schedule: about twice as many for an all-reduce over a ring.
      waiting_s: seconds in which training stood still for the network.
    """

    steps: int = 0
    exchanges: int = 0
    bytes_exchanged: int = 0
    waiting_s: float = 0.0


class Wire:
    """Averages and broadcasts over one process group.

    Args:
      group: a torch process group; None is the default group.
      aggregate: what a sum is; it must be one that a collective can form (`in_network`).
      stats: counts what goes over the wire.

    Attributes:
      factor: what a contribution is to be multiplied with before `start`.
    """

    def __init__(self, group: dist.ProcessGroup | None, aggregate: Aggregate[Any], stats: Stats) -> None:
        if aggregate.in_network != "sum":
            raise StrategyError(
                f"aggregate={aggregate!r} must see each contribution alone, and attach exchanges by "
                "collectives, which only pass on sums"
            )
        self.group = group
        self.stats = stats
        self.size = dist.get_world_size(group)
        self.factor = aggregate.factor(self.size)

    def empty(self, numel: int, like: Tensor) -> Tensor:
        """A flat buffer of `numel` elements, where peers on this host can reach it if the backend can."""
        backend = self._backend() if like.device.type == "cpu" else None
        if backend is not None and backend.supports_tensor_alloc(like.device):
            lent: Tensor = backend.allocate_tensor(numel, dtype=like.dtype, device=like.device)
            return lent
        return torch.empty(numel, dtype=like.dtype, device=like.device)

    def bucket(self, tensors: Sequence[Tensor], *, marked: bool = False) -> Bucket:
        """A bucket of `tensors`, which have one dtype and device."""
        return Bucket(self.empty(room(tensors, marked=marked), tensors[0]), tensors, marked=marked)

    def start(self, bucket: Bucket) -> dist.Work:
        """Begins to aggregate `bucket`, whose views hold contributions times `factor`.

        All ranks must start the same buckets in the same order.
        """
        self._count(bucket.flat)
        return self._work(dist.all_reduce(bucket.flat, group=self.group, async_op=True))

    def broadcast(self, tensors: Sequence[Tensor]) -> list[tuple[dist.Work, Bucket, list[Tensor]]]:
        """Begins to send rank 0's `tensors` to everybody. Hand the result to `receive`."""
        tensors = [tensor for tensor in tensors if tensor.numel()]
        pending = []
        for members in assign([item(tensor) for tensor in tensors], limit_bytes=25 * 2**20):
            group = [tensors[index].detach() for index in members]
            bucket = self.bucket(group)
            for view, tensor in zip(bucket.views, group, strict=True):
                view.copy_(tensor)
            self._count(bucket.flat)
            as_bytes = bucket.flat.view(torch.uint8)  # backends need not know every dtype to pass it on
            work = dist.broadcast(as_bytes, group=self.group, group_src=0, async_op=True)
            pending.append((self._work(work), bucket, group))
        return pending

    def receive(self, pending: Iterable[tuple[dist.Work, Bucket, list[Tensor]]]) -> None:
        """Waits for `broadcast` and puts what came into the tensors."""
        for work, bucket, tensors in pending:
            self.wait(work)
            for view, tensor in zip(bucket.views, tensors, strict=True):
                tensor.copy_(view)

    def wait(self, work: dist.Work) -> None:
        """Waits for `work`. Raises what the backend raises when a peer is lost or late."""
        began = time.monotonic()
        try:
            work.wait()
        finally:
            self.stats.waiting_s += time.monotonic() - began

    def gather(self, value: Any) -> list[Any]:
        """`value` of every rank, by rank. For small things, seldom: it is pickled."""
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def plan(self) -> str | None:
        """The group's choice of schedules, if its backend makes one and tells it; else None."""
        return plan_json(self.group)

    def _backend(self) -> Any:
        """What runs CPU tensors in the group; None if it cannot be told, as of a group written in Python."""
        try:
            return (self.group or dist.distributed_c10d._get_default_group())._get_backend(
                torch.device("cpu")
            )
        except RuntimeError:
            return None

    def _count(self, flat: Tensor) -> None:
        self.stats.bytes_exchanged += flat.numel() * flat.element_size()

    @staticmethod
    def _work(work: dist.Work | None) -> dist.Work:
        assert work is not None  # async_op=True gives one to every member of the group
        return work
