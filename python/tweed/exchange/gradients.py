"""What becomes of buckets of gradients: summed on the way, or compressed when all are there.

A `GradientReducer` owns the buckets and knows no hooks; `tweed.hooks.gradient` puts gradients in, and shows
what comes out.

    reducer.wanted()             the first gradient of a backward pass comes: is it to be exchanged?
    reducer.start(gradients)     a bucket is complete; buckets start in one order on all ranks
    reducer.finish()             all have started: views become averages
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.cadence import Ready
from tweed.compress import Memory, Update
from tweed.errors import NonFinite, UsageError
from tweed.exchange.autotuner import AutotunedBuffers, make_buffers
from tweed.exchange.bucket import Bucket, GradientBucket, room
from tweed.exchange.cadence_driver import CadenceDriver
from tweed.exchange.communicator import Communicator
from tweed.exchange.finite import FiniteFlags, OwnFlags, fill_nan
from tweed.exchange.flagged import exchange_if_finite
from tweed.exchange.pending import wait_for
from tweed.exchange.verdicts import Verdict, check_verdicts, other_steps, refusal

log = logging.getLogger("tweed")

#: Per bucket the tensors in it, by name.
Groups = Sequence[Mapping[str, Tensor]]


class GradientReducer:
    """Turns the gradients of ranks into averages. A subclass overrides what it does.

    Args:
      buckets: in the order in which they start.

    Attributes:
      prescale: what a gradient is multiplied with on its way into its bucket, in the exchange that has begun.
      takes_back: something is kept from one exchange to the next, and `load` of the `state` before an
        exchange takes that back.
      must_step: a server steps after each exchange, and so must the others.
      says: what became of the last exchange, for the next one.
      steps_taken: by this rank, since the exchange was made.
    """

    prescale = 1.0
    takes_back = False
    must_step = False

    def __init__(self, buckets: list[GradientBucket]) -> None:
        self.buckets = buckets
        self.says = Verdict.GO_ON
        self.steps_taken = 0

    def wanted(self) -> bool:
        """Whether the backward pass that begins is to be exchanged. If so, that exchange begins."""
        return True

    def renew(self, bucket: Bucket) -> None:
        """Gives a bucket other memory, as somebody else holds what it has."""
        bucket.lay(torch.empty_like(bucket.flat))

    def refuse(self, why: UsageError) -> None:
        """This rank cannot take part in the exchange that has begun: has all ranks hear of it, where they can
        and would wait otherwise."""

    def settle(self, name: str, param: Tensor) -> None:
        """`param.grad` is now what this rank has of the parameter `name`, if anything."""

    def start(self, gradients: GradientBucket) -> None:
        """All of a bucket is there; views without a gradient are zero."""

    def finish(self) -> list[Sequence[bool]]:
        """Waits until views are averages. Returns per bucket and view whether any rank contributed; a bucket
        for which this rank had all gradients may be left empty."""
        raise NotImplementedError  # each subclass has its own

    def flush(self) -> None:
        """What others still send of past exchanges has come."""

    def close(self) -> None:
        """The buckets are not used any more."""

    def check_finite(self) -> None:
        """Nothing, where nothing is kept from one exchange to the next."""

    def after_step(self, norm: float | None) -> None:
        """Does nothing here; a subclass may look at the step."""

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Does nothing here, as there is nothing to go on from."""


def shared_buckets(groups: Groups, comm: Communicator) -> list[GradientBucket]:
    """Buckets that a collective sums in place, with a mark per parameter."""
    return [GradientBucket(list(group), comm.bucket(list(group.values()), marked=True)) for group in groups]


def local_buckets(groups: Groups) -> list[GradientBucket]:
    """Buckets that nobody but this rank reads."""
    return [GradientBucket(list(group), _local(list(group.values()))) for group in groups]


def _local(tensors: Sequence[Tensor]) -> Bucket:
    flat = torch.empty(room(tensors), dtype=tensors[0].dtype, device=tensors[0].device)
    return Bucket(flat, tensors)


class SummedGradients(GradientReducer):
    """Each bucket is an all-reduce of its own, which begins while the backward pass still runs.

    Each bucket has one mark per parameter that shows whether a rank contributed. The last mark is 1 after an
    even number of steps, and else -1, so that its mean tells whether all ranks have taken the same ones. A
    rank that cannot take part makes marks NaN, which a sum with them is, too.
    """

    def __init__(self, buckets: list[GradientBucket], comm: Communicator, cadence: CadenceDriver) -> None:
        super().__init__(buckets)
        self.prescale = comm.prescale
        self.takes_back = comm.losses is not None
        self._comm = comm
        self._contributes = comm.owners.contributes
        self._cadence = cadence

    def wanted(self) -> bool:
        return self._cadence.decide()

    def renew(self, bucket: Bucket) -> None:
        self._comm.renew(bucket)

    def refuse(self, why: UsageError) -> None:
        for gradients in self.buckets:
            gradients.bucket.flat.zero_()
            gradients.bucket.marks.fill_(torch.nan)
            gradients.work = self._begin(gradients.bucket)
        for gradients in self.buckets:
            self._wait(gradients)
        self._refusal(why)

    def _wait(self, gradients: GradientBucket) -> None:
        assert gradients.work is not None  # it has started
        self._comm.wait(gradients.work)

    def start(self, gradients: GradientBucket) -> None:
        bucket = gradients.bucket
        bucket.marks.fill_(1)
        bucket.marks[-1] = self.prescale * (-1) ** self.steps_taken if self._contributes else 0
        for index in gradients.missing():
            bucket.marks[index] = self._comm.has_residual(bucket, index)
        gradients.work = self._begin(bucket)

    def _begin(self, bucket: Bucket) -> dist.Work:
        return self._comm.start(bucket)

    def finish(self) -> list[Sequence[bool]]:
        for gradients in self.buckets:
            self._wait(gradients)
        self._check(self.buckets[0].bucket.marks[-1])
        return [[] if one.full else self.contributed(one.bucket) for one in self.buckets]

    def contributed(self, bucket: Bucket) -> Sequence[bool]:
        """Whether any rank contributed, per view of a bucket that was received."""
        return [mark != 0 for mark in bucket.marks[:-1].tolist()]

    def _check(self, mark: Tensor) -> None:
        """Raises UsageError, on all ranks, if one cannot take part, or has taken other steps."""
        ranks, precision = self._comm.owners.contributors, torch.finfo(mark.dtype).eps
        mean = complex(mark).real
        if math.isnan(mean):
            raise self._refusal(None)
        if abs(mean) < 1 - 1 / ranks and ranks**2 * precision < 1:  # else rounding could be that much
            raise self._other_steps()

    def _refusal(self, own: UsageError | None) -> UsageError:
        return refusal(self._comm, self.buckets[0].bucket.flat.device, own)

    def _other_steps(self) -> UsageError:
        return other_steps(self._comm, self.buckets[0].bucket.flat.device, self.steps_taken)


class CompressedGradients(GradientReducer):
    """All buckets go through a memory and its codecs at once, when the backward pass has ended.

    A gradient that is not finite on some rank becomes NaN on all, and all others zero, unless a rule can do
    without that rank: see `finite`. Nothing is prescaled: `tweed.exchange.transfers` divides.
    """

    def __init__(
        self, buckets: list[GradientBucket], comm: Communicator, cadence: CadenceDriver, memory: Memory[Any]
    ) -> None:
        super().__init__(buckets)
        self.takes_back = True
        self._comm = comm
        self._cadence = cadence
        self.values = make_buffers(memory, [one.bucket.views for one in buckets], comm)
        # A cadence that decides by the norm must know first that all is finite.
        self._carried = self.values.carry_flags and not cadence.needs_norm
        self._trouble: NonFinite | None = None

    def wanted(self) -> bool:
        """What needs the norm of gradients is decided when all are there."""
        return self._cadence.needs_norm or self._cadence.decide()

    def finish(self) -> list[Sequence[bool]]:
        values = [one.bucket.values.to(torch.float32, copy=self._carried) for one in self.buckets]
        flags, updates = self._exchange(self.says, values, None)
        names = [one.names for one in self.buckets]
        self._trouble = flags.error(names) if updates is None else None
        if updates is None:
            self._fill_nan(flags)
        else:
            if flags.broken:
                log.warning("left out of this exchange: %s", flags.words(names))
            for gradients, update in zip(self.buckets, updates, strict=True):
                gradients.bucket.values.copy_(update.delta)
        return [
            self._contributed(gradients, by_any)
            for gradients, by_any in zip(self.buckets, flags.given, strict=True)
        ]

    def refuse(self, why: UsageError) -> None:
        with suppress(UsageError):
            self._exchange(Verdict.REFUSED, [], why)

    def _exchange(
        self, verdict: Verdict, values: list[Tensor], why: UsageError | None
    ) -> tuple[FiniteFlags, list[Update] | None]:
        given = [[index in one.given for index in range(len(one.names))] for one in self.buckets]
        says = 2 * verdict + self.steps_taken % 2
        own = OwnFlags.of([one.bucket for one in self.buckets], given, says)
        check = partial(self._check, why)
        return wait_for(
            exchange_if_finite(self.values, own, values, self._is_silent, check, carried=self._carried)
        )

    def _check(self, why: UsageError | None, flags: FiniteFlags) -> None:
        device = self.buckets[0].bucket.flat.device
        check_verdicts([word // 2 for word in flags.said], self._comm, device, why)
        if len({word % 2 for word in flags.said}) > 1:
            raise other_steps(self._comm, device, self.steps_taken)

    def _is_silent(self, values: Sequence[Tensor]) -> bool:
        if self._cadence.needs_norm:
            self._cadence.handle(Ready(self.values.pending_norm(values)))
            self._cadence.decide()
        return self._cadence.silent

    def _contributed(self, gradients: GradientBucket, by_any: Sequence[bool]) -> Sequence[bool]:
        """A residual may come from ranks that have no gradient this time."""
        if gradients.full:
            return []
        views = gradients.bucket.views
        return [given or bool(view.any()) for given, view in zip(by_any, views, strict=True)]

    def _fill_nan(self, flags: FiniteFlags) -> None:
        for gradients, bad in zip(self.buckets, flags.bad, strict=True):
            fill_nan(gradients.bucket, bad)

    def check_finite(self) -> None:
        trouble, self._trouble = self._trouble, None
        if trouble is not None and not all(one.bucket.values.isfinite().all() for one in self.buckets):
            raise trouble

    def state(self) -> dict[str, Any]:
        return {"buffers": self.values.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        self.values.load(state["buffers"])


class AutotunedGradients(GradientReducer):
    """`compress="auto"`: each exchange is summed or compressed, as the autotuner has chosen.

    When it stops compressing, the residual goes with one more compressed exchange, whole. Only for cadences
    under which no rank is ever silent.
    """

    def __init__(
        self, buckets: list[GradientBucket], comm: Communicator, cadence: CadenceDriver, memory: Memory[Any]
    ) -> None:
        super().__init__(buckets)
        self.takes_back = True
        self._losses = comm.losses
        self._summed = SummedGradients(buckets, comm, cadence)
        self._compressed = CompressedGradients(buckets, comm, cadence, memory)
        self._now: GradientReducer = self._summed
        assert isinstance(self._compressed.values, AutotunedBuffers)  # the memory is `Auto`
        self._buffers = self._compressed.values
        self._autotuner = self._buffers.autotuner
        self._residual = False  # may a memory have something that was not sent?

    def wanted(self) -> bool:
        """As the cadence decides; what was chosen carries out the exchange that begins."""
        if not self._compressed.wanted():
            return False
        self._autotuner.begin()
        plain = self._autotuner.choice == 0 and not self._residual
        self._now = self._summed if plain else self._compressed
        self._now.says, self._now.steps_taken = self.says, self.steps_taken
        self.prescale = self._now.prescale
        return True

    def renew(self, bucket: Bucket) -> None:
        self._summed.renew(bucket)

    def refuse(self, why: UsageError) -> None:
        self._now.refuse(why)

    def start(self, gradients: GradientBucket) -> None:
        if self._now is self._compressed and self._losses is not None:
            # what the plain exchanges have lost was prescaled
            self._losses.add_residual(gradients.bucket, 1 / self._summed.prescale)
        self._now.start(gradients)

    def finish(self) -> list[Sequence[bool]]:
        self._autotuner.ready()
        contributed = self._now.finish()
        if self._now is self._compressed:
            self._residual = self._autotuner.choice != 0 or self._lost()
        self._autotuner.end(self.buckets[0].bucket.flat)
        return contributed

    def _lost(self) -> bool:
        """Whether the network has lost parts of what was to go whole."""
        return self._losses is not None and self._buffers.has_residual()

    def check_finite(self) -> None:
        self._compressed.check_finite()

    def state(self) -> dict[str, Any]:
        return self._compressed.state()

    def load(self, state: Mapping[str, Any]) -> None:
        """Candidates are tried anew."""
        self._compressed.load(state)
        self._residual = True
