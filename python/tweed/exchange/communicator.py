"""The process group as the exchanges see it: start, wait, count."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.exchange import engine
from tweed.exchange.bucket import Bucket, assign, item, room
from tweed.exchange.losses import Losses
from tweed.exchange.owners import Owners, mean_of
from tweed.metrics import timeline
from tweed.strategy import Strategy
from tweed.transport import Ltp


@dataclass(slots=True)
class Stats:
    """What a `Run` has done so far.

    Attributes:
      steps: optimizer steps taken.
      exchanges: how often ranks exchanged all they had to.
      bytes_exchanged: bytes of this rank's buffers that went into sums. How many crossed a link is up to the
        schedule: about twice as many for an all-reduce over a ring. Pieces of packets, and what is sent to
        all, cross once and so count half.
      bytes_packed: bytes of the packets that this rank's contributions were compressed to; 0 without a
        compressor.
      bytes_answered: bytes of this rank's replies about the ranges that it owns, once each; at a hub, of the
        models that went to workers.
      waiting_s: seconds in which training stood still for the network.
      encoding_s: seconds in which codecs worked, decoding too.
      bytes_contributed: bytes of this rank's contributions that a transport sent which may lose parts.
      bytes_lost: how many of them did not arrive.
      chosen: what `compress="auto"` takes; None elsewhere, and before it has chosen.
      gain: seconds of an exchange without compression over those of that choice.
      break_even_bits: bits per second of a link above which nothing compressed pays; where compression is
        off, of the best candidate. Infinite if compressing takes no time.
    """

    steps: int = 0
    exchanges: int = 0
    bytes_exchanged: int = 0
    bytes_packed: int = 0
    bytes_answered: int = 0
    waiting_s: float = 0.0
    encoding_s: float = 0.0
    bytes_contributed: int = 0
    bytes_lost: int = 0
    chosen: str | None = None
    gain: float | None = None
    break_even_bits: float | None = None


class Wait:
    """A wait for the network that begins now.

    Args:
      group: whose links tell who was last heard of; None is the default group, if there is one.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self._group = group
        self._before = self._link_counters()
        self._began = time.monotonic()

    def seconds(self) -> float:
        """For how long it has lasted."""
        return time.monotonic() - self._began

    def end(self) -> None:
        """Notes it, if somebody records."""
        ended = time.monotonic()
        timeline.note("wait", self._began, ended, timeline.last_heard(self._before, self._link_counters()))

    def _link_counters(self) -> list[dict[str, Any]]:
        asks = timeline.records() and dist.is_initialized()
        return engine.link_counters(self._group) if asks else []


#: Of each group, those that are free: far from what a training loop takes.
_free_tags: WeakKeyDictionary[dist.ProcessGroup, Iterator[int]] = WeakKeyDictionary()


def _tags_of(group: dist.ProcessGroup) -> Iterator[int]:
    return _free_tags.setdefault(group, count(7330))


class Communicator:
    """Averages and broadcasts over one process group.

    Args:
      group: a torch process group; None is the default group. If the strategy names a transport or a server,
        a group of its own is made over the same ranks.
      strategy: aggregate, collective and transport count.
      stats: counts what goes over the wire.

    Attributes:
      group: over which contributions go: the strategy's own, if it has one.
      everybody: over the same ranks; reductions have the server's values too, which `group`'s leave out.
      size, rank: of the group, and of this process in it.
      owners: who of them contributes, and who aggregates.
      prescale: what a contribution is multiplied with before `start`. The mean is then formed by the sum
        itself, as in DDP, so that 16-bit sums do not overflow; nothing divides afterwards.
      losses: what the transport loses; None if it loses nothing.
    """

    def __init__(self, group: dist.ProcessGroup | None, strategy: Strategy, stats: Stats) -> None:
        self._own = engine.own_group(strategy, group)
        self._closed = False
        self.group = group if self._own is None else self._own
        self.everybody = group
        self.stats = stats
        of = group or dist.distributed_c10d._get_default_group()  # members' need not be a part of that
        self.size, self.rank = of.size(), of.rank()
        self.owners = owners = Owners.of(strategy, self.rank, self.size)
        # Where only what was delivered counts, the engine divides, value by value.
        self.prescale = 1.0 if owners.by_delivered else 1 / owners.contributors
        self._op = dist.ReduceOp.AVG if owners.by_delivered else dist.ReduceOp.SUM
        self._tags = _tags_of(self.group or of)
        self.losses: Losses | None = None
        if isinstance(strategy.transport, Ltp) and strategy.may_lose:
            self.losses = Losses(engine.loss_reports(self.group), returned=strategy.transport.return_lost)

    def empty(self, numel: int, like: Tensor) -> Tensor:
        """A flat buffer of `numel` elements, where peers on this host can reach it if the backend can."""
        backend = self._backend() if like.device.type == "cpu" else None
        if backend is not None and backend.supports_tensor_alloc(like.device):
            lent: Tensor = backend.allocate_tensor(numel, dtype=like.dtype, device=like.device)
            return lent
        return torch.empty(numel, dtype=like.dtype, device=like.device)

    def bucket(self, tensors: Sequence[Tensor], *, marked: bool = False) -> Bucket:
        """A bucket of `tensors`, which have one dtype and device, to be exchanged again and again."""
        bucket = Bucket(self.empty(room(tensors, marked=marked), tensors[0]), tensors, marked=marked)
        if self.losses is not None:
            self.losses.add(bucket)
        return bucket

    def renew(self, bucket: Bucket) -> None:
        """Gives a bucket that `bucket` has made other memory; values stay behind."""
        flat = self.empty(bucket.flat.numel(), bucket.flat)
        if self.losses is None:
            bucket.lay(flat)
        else:
            self.losses.lay(bucket, flat)

    def has_residual(self, bucket: Bucket, index: int) -> bool:
        """Whether this rank contributes to the tensor at `index` though it has no gradient."""
        return self.losses is not None and self.losses.has_residual(bucket, index)

    def start(self, bucket: Bucket) -> dist.Work:
        """Begins to aggregate `bucket`, whose views hold contributions times `prescale`.

        All ranks must start the same buckets in the same order.
        """
        if self.losses is not None:
            self.losses.add_residual(bucket)
        self.count(bucket.flat)
        return self.work(dist.all_reduce(bucket.flat, self._op, self.group, async_op=True))

    def start_mean(self, values: Tensor) -> dist.Work:
        """Begins to average `values` over those that contribute; `end_mean` has the average."""
        self.count(values)
        return self.work(dist.all_reduce(values, self._op, self.group, async_op=True))

    def end_mean(self, work: dist.Work, values: Tensor) -> Tensor:
        """Waits for what `start_mean` began; the average as float32. `values` are scratch memory then."""
        self.wait(work)
        return values.float() if self.owners.by_delivered else mean_of(values, self.owners.contributors)

    def sum(self, values: Tensor) -> Tensor:
        """Adds `values` up over those that contribute, in place, without loss. Waits for it."""
        self.count(values)
        with nullcontext() if self.losses is None else self.losses.whole([values]):
            self.wait(self.work(dist.all_reduce(values, group=self.group, async_op=True)))
        return values

    def mean(self, values: Tensor) -> Tensor:
        """The average of `values`, in place, without loss. Waits for it."""
        return self.sum(values).div_(self.owners.contributors)

    def end_exchange(self) -> None:
        """Counts an exchange whose buckets have all been waited for, and takes back what was lost of them."""
        if self.losses is not None:
            contributed, lost = self.losses.end_exchange(self.stats.steps)
            self.stats.bytes_contributed += contributed
            self.stats.bytes_lost += lost
        self.stats.exchanges += 1

    def broadcast(
        self, tensors: Sequence[Tensor], root: int | None = None
    ) -> list[tuple[dist.Work, Bucket, list[Tensor]]]:
        root = self.owners.first if root is None else root
        tensors = [tensor for tensor in tensors if tensor.numel()]
        pending = []
        for members in assign([item(tensor) for tensor in tensors], limit_bytes=25 * 2**20):
            group = [tensors[index].detach() for index in members]
            bucket = Bucket(self.empty(room(group), group[0]), group)
            for view, tensor in zip(bucket.views, group, strict=True):
                view.copy_(tensor)
            self.count(bucket.flat, crossings=1)
            as_bytes = bucket.flat.view(torch.uint8)  # backends need not know every dtype to pass it on
            work = dist.broadcast(as_bytes, group=self.group, group_src=root, async_op=True)
            pending.append((self.work(work), bucket, group))
        return pending

    def receive(self, pending: Iterable[tuple[dist.Work, Bucket, list[Tensor]]]) -> None:
        """Waits for `broadcast` and puts what came into the tensors."""
        for work, bucket, tensors in pending:
            self.wait(work)
            for view, tensor in zip(bucket.views, tensors, strict=True):
                tensor.copy_(view)

    def wait(self, work: dist.Work) -> None:
        """Waits for `work`. Raises what the backend raises when a peer is lost or late. Any other exception,
        such as that of a signal's handler, breaks the exchange off."""
        wait = Wait(self.group)
        try:
            work.wait()
        except RuntimeError:
            raise  # the others see so too
        except BaseException:
            self.break_off()
            raise
        finally:
            self.stats.waiting_s += wait.seconds()
        wait.end()  # not of one that failed: its group may be gone

    @contextmanager
    def encoding(self) -> Iterator[None]:
        """Codecs work within this context; counters and timeline note for how long."""
        began = time.monotonic()
        yield
        ended = time.monotonic()
        self.stats.encoding_s += ended - began
        timeline.note("encode", began, ended)

    def plan(self) -> str | None:
        """The group's choice of schedules, if its backend makes one and shows it; else None.

        None for a group of the strategy's own too: transport and server leave no choice for sums.
        """
        return engine.plan(self.group) if self._own is None else None

    def close(self) -> None:
        """Ends the group if it is the strategy's own. A second call does nothing."""
        if self._own is not None and not self._closed:
            self._closed = True
            dist.destroy_process_group(self._own)

    def break_off(self) -> None:
        with suppress(RuntimeError):  # as of Gloo, which cannot
            self._backend().abort()

    def _backend(self) -> Any:
        """What runs CPU tensors in the group; None if unknown, as of a group written in Python."""
        try:
            return (self.group or dist.distributed_c10d._get_default_group())._get_backend(
                torch.device("cpu")
            )
        except RuntimeError:
            return None

    @property
    def sends_from_host(self) -> bool:
        """Whether what lies on an accelerator crosses from the host's memory anyhow: all ranks say the same,
        where each has memory of another kind too. Elsewhere, as under NCCL, a send may wait for a receive."""
        return dist.get_backend(self.group) in ("tweed", "gloo")

    def tag(self) -> int:
        """A tag for messages from rank to rank that no others in the group have, as those of a run that was
        ended amid an exchange may never be received. All ranks ask for tags in the same order."""
        return next(self._tags)

    def count(self, flat: Tensor, crossings: int = 2) -> None:
        """Notes that `flat` goes into an exchange, in which a value crosses links so often."""
        self.stats.bytes_exchanged += flat.numel() * flat.element_size() * crossings // 2

    @staticmethod
    def work(work: dist.Work | None) -> dist.Work:
        """What was begun with `async_op=True`."""
        assert work is not None  # async_op=True gives one to every member of the group
        timeline.follow(work, time.monotonic)
        return work
