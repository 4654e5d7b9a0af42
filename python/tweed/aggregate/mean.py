"""The plain average of those who contributed."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tweed.aggregate.base import Answer, Arrival, Gathered, Reason, Value, Verdict


@dataclass(frozen=True, slots=True)
class Mean:
    """The average of those who contributed: where a number was lost, of those whose number is there.

    A sender that arrives twice counts once, with its latest. Sums are formed in the order of senders, so the
    result does not depend on who came first. A number that reached nobody is zero.

    Cost: one pass over each contribution.
    """

    in_network: ClassVar[Literal["mean"] | None] = "mean"
    compares: ClassVar[bool] = False

    def require(self, contributors: int) -> None:
        """Any number will do."""

    def start(self) -> Gathered:
        """Nothing has arrived."""
        return Gathered()

    def handle(self, event: Arrival | Answer, state: Gathered, now: float) -> Gathered:
        """Puts an arrival in its sender's place."""
        return state.plus(event)

    def poll(self, state: Gathered, now: float) -> tuple[Value | None, tuple[Verdict, ...], Gathered]:
        """The average of what has arrived, without what is not finite or of another shape than most, zeros if
        nothing is left; and an empty state."""
        arrivals = state.arrivals
        if not arrivals:
            return None, (), state
        shape, _ = Counter(tuple(one.value.shape) for one in arrivals).most_common(1)[0]
        reasons = [_reason(one, shape) for one in arrivals]
        pairs = list(zip(arrivals, reasons, strict=True))
        believed = tuple(one for one, reason in pairs if reason is Reason.EQUAL)
        verdicts = tuple(
            Verdict(one.sender, 1 / len(believed) if reason is Reason.EQUAL else 0.0, reason)
            for one, reason in pairs
        )
        if believed:
            return _total(believed) / _contributors(believed), verdicts, Gathered()
        first = next(one.value for one in arrivals if tuple(one.value.shape) == shape)
        return (first != first) * 0.0, verdicts, Gathered()


def _reason(arrival: Arrival, shape: tuple[int, ...]) -> Reason:
    if tuple(arrival.value.shape) != shape:
        return Reason.SHAPE
    # Their sum is finite, or they are looked at one by one: a sum of large ones may overflow.
    value = arrival.value
    fine = math.isfinite(abs(value.sum())) or bool((value - value == 0).all())
    return Reason.EQUAL if fine else Reason.NOT_FINITE


def _total(arrivals: tuple[Arrival, ...]) -> Value:
    first, *others = arrivals
    return sum((one.value for one in others), start=first.value)


def _contributors(arrivals: tuple[Arrival, ...]) -> Any:
    masks = [one.missing for one in arrivals if one.missing is not None]
    if not masks:
        return len(arrivals)
    missing = sum((mask * 1 for mask in masks[1:]), start=masks[0] * 1)
    return (len(arrivals) - missing).clip(min=1)
