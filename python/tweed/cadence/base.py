"""The contract of the stage: what a cadence is told, what it decides, how its state is kept.

A cadence is pure. It holds settings only; the caller holds the state and passes `now`, in seconds of any
clock that never goes back. So the live driver (`tweed.attach`) and the simulated one run the same code.

    state = cadence.start()
    state = cadence.handle(event, state, now)        # something happened
    decision, state = cadence.poll(state, now)       # talk now, or keep going alone?

Call `poll` once after each `handle`, and once before each gradient that could be exchanged. A decision to
exchange is final: the state that comes with it takes the exchange as done.

Events so far are `StepDone` and `Stop`. A peer's message and a timer become events with the first cadence
that listens to them; a cadence ignores events that mean nothing to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Protocol, TypeVar, runtime_checkable

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class StepDone:
    """The optimizer took a step here. `norm`: length of the update, None if nobody measured it."""

    norm: float | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """The caller needs one model on all ranks now: training ends, or an evaluation begins."""


Event = StepDone | Stop


class Decision(Enum):
    """Talk now or keep going alone, and why. The value is the text for people."""

    EVERY_STEP = "exchange: this cadence exchanges every step"
    ROUND_FULL = "exchange: the round of local steps is full"
    LAST_ROUND = "exchange: the round is open, but one model is needed now"
    ROUND_OPEN = "keep going: the round of local steps is not full"
    AGREED = "keep going: nothing is new since the last exchange"

    @property
    def exchange(self) -> bool:
        """True: every rank exchanges now."""
        return self.value.startswith("exchange")


@runtime_checkable
class Cadence(Protocol[State]):
    """When to talk. `State` is a frozen dataclass of plain numbers, so that it can be stored.

    Attributes:
      exchanges: what this cadence can exchange, of "gradient", "step", "difference" and "model".
      reason: why it can exchange nothing else; for the error text.
    """

    exchanges: ClassVar[frozenset[str]]
    reason: ClassVar[str]

    def start(self) -> State:
        """The state before the first step."""
        ...

    def handle(self, event: Event, state: State, now: float) -> State:
        """The state after `event`, which happened at `now` (seconds)."""
        ...

    def poll(self, state: State, now: float) -> tuple[Decision, State]:
        """What to do at `now` (seconds), and the state after it was done."""
        ...
