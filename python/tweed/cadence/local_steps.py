"""Take several steps alone, then exchange: local SGD."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tweed.cadence.base import Decision, Event, StepDone, Stop
from tweed.errors import UsageError


@dataclass(frozen=True, slots=True)
class Round:
    """State of `LocalSteps`: steps since the last exchange, and whether one model is wanted now."""

    steps: int = 0
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class LocalSteps:
    """Exchanges after every `every` steps, and what is left of a round at `Stop`.

    Args:
      every: steps per round, 1 or more. Must be equal on all ranks.

    Raises: UsageError if `every` is less than 1.
    Cost: one exchange per `every` steps.
    Source: Stich, "Local SGD converges fast and communicates little", 2018.
    """

    every: int

    exchanges: ClassVar[frozenset[str]] = frozenset({"difference", "model"})
    reason: ClassVar[str] = "between exchanges the models differ, so gradients belong to different models"

    def __post_init__(self) -> None:
        if not _is_count(self.every):
            raise UsageError(f"local steps: every={self.every!r} is no number of steps; give 1 or more")

    def start(self) -> Round:
        """The state before the first step."""
        return Round()

    def handle(self, event: Event, state: Round, now: float) -> Round:
        """Counts steps, and notes that one model is wanted."""
        if isinstance(event, StepDone):
            return Round(steps=state.steps + 1)
        return replace(state, stopped=isinstance(event, Stop))

    def poll(self, state: Round, now: float) -> tuple[Decision, Round]:
        """To exchange when the round is full, or when it has steps in it and one model is wanted."""
        if state.steps >= self.every:
            return Decision.ROUND_FULL, Round()
        if state.stopped and state.steps:
            return Decision.LAST_ROUND, Round()
        return (Decision.ROUND_OPEN if state.steps else Decision.AGREED), replace(state, stopped=False)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
