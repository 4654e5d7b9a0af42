"""The plain average of those who contributed."""

from __future__ import annotations

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

    def require(self, contributors: int) -> None:
        """Any number will do."""

    def start(self) -> Gathered:
        """Nothing has arrived."""
        return Gathered()

    def handle(self, event: Arrival | Answer, state: Gathered, now: float) -> Gathered:
        """Puts an arrival in its sender's place."""
        return state.plus(event)

    def poll(self, state: Gathered, now: float) -> tuple[Value | None, tuple[Verdict, ...], Gathered]:
        """The average of what has arrived, and an empty state."""
        arrivals = state.arrivals
        if not arrivals:
            return None, (), state
        verdicts = tuple(Verdict(one.sender, 1 / len(arrivals), Reason.EQUAL) for one in arrivals)
        return _total(arrivals) / _contributors(arrivals), verdicts, Gathered()


def _total(arrivals: tuple[Arrival, ...]) -> Value:
    first, *others = arrivals
    return sum((one.value for one in others), start=first.value)


def _contributors(arrivals: tuple[Arrival, ...]) -> Any:
    masks = [one.missing for one in arrivals if one.missing is not None]
    if not masks:
        return len(arrivals)
    missing = sum((mask * 1 for mask in masks[1:]), start=masks[0] * 1)
    return (len(arrivals) - missing).clip(min=1)
