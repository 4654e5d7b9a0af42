"""Exchange every step: plain synchronous training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tweed.cadence.base import Cadence, Decision, Event, Stop


@dataclass(frozen=True, slots=True)
class EveryStepState:
    """State of `EveryStep`: whether one model is wanted now."""

    stopped: bool = False


@dataclass(frozen=True, slots=True)
class EveryStep(Cadence[EveryStepState]):
    """Exchanges every step.

    Cost: one exchange per step.
    Source: synchronous SGD; the cadence of torch's DistributedDataParallel.
    """

    exchanges: ClassVar[frozenset[str]] = frozenset({"gradient", "factors", "step", "difference", "model"})
    reason: ClassVar[str] = "all that is exchanged is one step old"
    round_steps: ClassVar[int] = 1

    def start(self) -> EveryStepState:
        """The state before the first step."""
        return EveryStepState()

    def handle(self, event: Event, state: EveryStepState, now: float) -> EveryStepState:
        """Notes that one model is wanted."""
        return EveryStepState(stopped=isinstance(event, Stop))

    def poll(self, state: EveryStepState, now: float) -> tuple[Decision, EveryStepState]:
        """To exchange; at `Stop` nothing is left to."""
        return (Decision.AGREED if state.stopped else Decision.EVERY_STEP), EveryStepState()
