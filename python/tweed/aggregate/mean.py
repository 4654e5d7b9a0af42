"""The plain average of those who contributed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tweed.aggregate.base import Aggregate, Answer, Arrival, Gathered, Reason, Value, Verdict


@dataclass(frozen=True, slots=True)
class Mean(Aggregate[Any]):
    """The average of those who contributed: where a number was lost, of those whose number is there.

    A sender that arrives twice counts once, with its latest. Sums are formed in the order of senders, so the
    result does not depend on who came first. A number that reached nobody is zero.

    Cost: one pass over each contribution.
    """

    in_network: ClassVar[Literal["mean"] | None] = "mean"

    def require(self, contributors: int) -> None:
        """Any number will do."""

    def start(self) -> Gathered:
        return Gathered()

    def handle(self, event: Arrival | Answer, state: Gathered, now: float) -> Gathered:
        """Puts an arrival in its sender's place."""
        return state.plus(event)

    def poll(self, state: Gathered, now: float) -> tuple[Value | None, tuple[Verdict, ...], Gathered]:
        """The average of what has arrived, without what is not finite or of another shape than most, zeros if
        nothing is left; and an empty state."""
        if not state.arrivals:
            return None, (), state
        total, reasons = summed(state.arrivals)
        pairs = list(zip(state.arrivals, reasons, strict=True))
        accepted = [one for one, reason in pairs if reason is Reason.EQUAL]
        weight = 1 / max(1, sum(len(_senders(one)) for one in accepted))
        verdicts = tuple(
            Verdict(sender, weight if reason is Reason.EQUAL else 0.0, reason)
            for one, reason in pairs
            for sender in _senders(one)
        )
        return (_divided(total, accepted) if accepted else total), verdicts, Gathered()


def summed(arrivals: Sequence[Arrival]) -> tuple[Value, list[Reason]]:
    """The sum in the order given, without what is not finite or of another shape than most; and of each why
    it is in it, or not. Zeros if nothing is left.

    Args:
      arrivals: at least one.
    """
    shape, _ = Counter(tuple(one.value.shape) for one in arrivals).most_common(1)[0]
    reasons = [_reason(one, shape) for one in arrivals]
    values = [one.value for one, reason in zip(arrivals, reasons, strict=True) if reason is Reason.EQUAL]
    if values:
        return sum(values[1:], start=values[0]), reasons
    first = next(one.value for one in arrivals if tuple(one.value.shape) == shape)
    return (first != first) * 0.0, reasons


def _senders(arrival: Arrival) -> tuple[int, ...]:
    return arrival.senders or (arrival.sender,)


def _reason(arrival: Arrival, shape: tuple[int, ...]) -> Reason:
    if tuple(arrival.value.shape) != shape:
        return Reason.SHAPE
    return Reason.EQUAL if _finite(arrival.value) else Reason.NOT_FINITE


def _finite(value: Value) -> bool:
    # Their sum is finite, or they are looked at one by one: a sum of large ones may overflow.
    return math.isfinite(abs(value.sum())) or bool((value - value == 0).all())


def _divided(total: Value, accepted: Sequence[Arrival]) -> Value:
    contributors = _contributors(accepted)
    if _finite(total):
        return total / contributors
    # Each is finite, so their mean is, though their sum is not.
    return sum((one.value / contributors for one in accepted[1:]), start=accepted[0].value / contributors)


def _contributors(arrivals: Sequence[Arrival]) -> Any:
    masks = [one.missing for one in arrivals if one.missing is not None]
    count = sum(len(_senders(one)) for one in arrivals)
    if not masks:
        return count
    missing = sum((mask * 1 for mask in masks[1:]), start=masks[0] * 1)
    return (count - missing).clip(min=1)
