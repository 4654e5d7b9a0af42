"""What is done to contributions before a rule sees them: each becomes a weighted sum of all.

    NearestNeighbourMixing(Krum(0.2), f=0.2)

Such a part is an aggregate around another one. It asks for inner products, weighs, gives the sums to the
other as if a sender each had sent them, and passes on what that asks for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tweed.aggregate.base import (
    Aggregate,
    Answer,
    Arrival,
    Gathered,
    InnerProducts,
    Question,
    Reason,
    Value,
    Verdict,
)
from tweed.aggregate.bounded import Bounded
from tweed.aggregate.distance_based import computable
from tweed.aggregate.tensor_ops import Row, as_given, rows_of, weighted_sums
from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Around(Gathered):
    """A state.

    Attributes:
      then: the state of the other aggregate.
      shares: `[m, n]`, of what each of the other's contributions is the sum; None while it has none.
      batches: how many have ended.
    """

    then: Any = None
    shares: Tensor | None = None
    batches: int = 0

    def plus(self, event: Arrival | Answer) -> Self:
        """With another arrival the sums are others, too."""
        return replace(Gathered.plus(self, event), shares=None)


class Preprocess(Aggregate[Around]):
    """What these parts share: a subclass says of what each sum is made.

    One of another shape than most, or that is not finite or longer than 1e70, is no part of any sum. The rule
    gets as many contributions as if it were: what stands for it is not a number.

    Attributes:
      one_each: the i-th sum is mostly the i-th contribution, and goes under its sender.
    """

    __slots__ = ()
    then: Aggregate[Any]
    one_each: ClassVar[bool] = True

    @property
    def compares(self) -> bool:
        return self.then.compares

    @property
    def judge(self) -> Aggregate[Any]:
        return self.then.judge

    def sums(self, contributors: int) -> int:
        """How many sums are made of `contributors` contributions."""
        return contributors

    def shares(self, products: Tensor, batch: int) -> Tensor:
        """How much of each contribution each sum holds: `[m, n]`, from 0 on.

        Args:
          products: inner products of contributions, `[n, n]` float64, finite.
          batch: number of this one.
        """
        raise NotImplementedError  # each part has its own

    def require(self, contributors: int) -> None:
        """Raises UsageError if the other aggregate cannot hold with so few."""
        self.then.require(self.sums(contributors))

    def start(self) -> Around:
        return Around(then=self.then.start())

    def handle(self, event: Arrival | Answer, state: Around, now: float) -> Around:
        """Puts an arrival in its sender's place, or takes an answer."""
        if isinstance(event, Answer) and state.shares is not None:
            return replace(state, then=self.then.handle(event, state.then, now))
        return state.plus(event)

    def poll(self, state: Around, now: float) -> tuple[Value | Question | None, tuple[Verdict, ...], Around]:
        """A question; when that is answered, those of the other aggregate; then what it comes to.

        Raises: UsageError as `require`.
        """
        if not state.arrivals:
            return None, (), state
        self.require(len(state.arrivals))
        rows = rows_of(state.arrivals)
        whole = [row for row in rows if row.fits]
        if state.answer is None:
            return InnerProducts([row.value for row in whole]), (), state
        kept = computable(state.answer)
        accepted = [row for row, fine in zip(whole, kept.tolist(), strict=True) if fine]
        if not accepted:
            after = replace(self.start(), then=state.then, batches=state.batches + 1)
            return as_given(None, rows, state.arrivals), _rejected(rows, ()), after
        if state.shares is None:
            state = self._begun(state, accepted, kept, now)
        found, verdicts, then = self.then.poll(state.then, now)
        state = replace(state, then=then)
        if isinstance(found, Question):
            return found, (), state
        assert found is not None and state.shares is not None  # it was given contributions
        after = replace(self.start(), then=then, batches=state.batches + 1)
        by_sum = {one.sender: one for one in verdicts}
        senders = [row.sender for row in accepted] if self.one_each else range(len(state.shares))
        of_sums = [by_sum[sender] for sender in senders]
        verdicts = (*_by_sum(state.shares, of_sums, accepted), *_rejected(rows, accepted))
        ordered = tuple(sorted(verdicts, key=lambda one: one.sender))
        return as_given(found, rows, state.arrivals), ordered, after

    def _begun(self, state: Around, accepted: Sequence[Row], kept: Tensor, now: float) -> Around:
        """With all sums given to the other aggregate."""
        shares = self.shares(state.answer[kept][:, kept], state.batches)
        by_sender = {one.sender: one for one in state.arrivals}
        ours = {row.sender for row in accepted}
        left_out = [sender for sender in by_sender if sender not in ours]
        then = state.then
        for at, value in enumerate(weighted_sums(accepted, shares)):
            sender = accepted[at].sender if self.one_each else at
            like = by_sender[sender] if self.one_each else Arrival(None, at)
            arrival = replace(like, value=value, missing=None)
            then = self.then.handle(arrival, then, now)
        for at in range(len(shares), self.sums(len(state.arrivals))):
            sender = left_out[at - len(shares)] if self.one_each else at
            nothing = accepted[0].value.new_full(accepted[0].value.shape, math.nan)
            then = self.then.handle(Arrival(nothing, sender), then, now)
        return replace(state, then=then, shares=shares)


@dataclass(frozen=True, slots=True)
class BoundedPreprocess(Preprocess):
    """Such a part that is told how many contributions may be anything.

    Args:
      then: the rule that sees the sums.
      f: a number, or a share of those that arrive, rounded down; less than half of them.
    """

    then: Aggregate[Any]
    f: int | float = 0.25

    def __post_init__(self) -> None:
        check_inner(self, self.then)
        Bounded(self.f)

    def byzantine(self, count: int) -> int:
        """`f` of `count` contributions."""
        return Bounded(self.f).byzantine(count)

    def require(self, contributors: int) -> None:
        least = Bounded(self.f).least(self.byzantine(contributors))
        if contributors < least:
            raise UsageError(f"{self!r} needs at least {least} contributions, and there are {contributors}")
        self.then.require(contributors)


def _by_sum(shares: Tensor, verdicts: Sequence[Verdict], rows: Sequence[Row]) -> list[Verdict]:
    """What verdicts on sums, in their order, mean for each contribution: its weight in what counts, and the
    reason of the sum that it is most of."""
    weights = shares.new_tensor([verdict.weight for verdict in verdicts]) @ shares
    mostly = shares.argmax(dim=0).tolist()
    return [
        Verdict(row.sender, weight, verdicts[at].reason, verdicts[at].score)
        for row, weight, at in zip(rows, weights.tolist(), mostly, strict=True)
    ]


def _rejected(rows: Sequence[Row], accepted: Sequence[Row]) -> tuple[Verdict, ...]:
    senders = {row.sender for row in accepted}
    return tuple(
        Verdict(row.sender, 0.0, Reason.NOT_FINITE if row.fits else Reason.SHAPE)
        for row in rows
        if row.sender not in senders
    )


def check_inner(part: object, then: object) -> None:
    """Raises UsageError unless `then` is an aggregate."""
    if isinstance(then, type) or not isinstance(then, Aggregate):
        raise UsageError(f"{part!r}: {then!r} is no aggregate; give one, such as Median()")
