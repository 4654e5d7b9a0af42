"""Ordered transmission, the server's side: when has it received enough? See `ordered`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum

from tweed.cadence.base import ContributionReceived, Event, IterationStarted, StepDone
from tweed.cadence.moves import Moves
from tweed.cadence.timers import Timer
from tweed.errors import UsageError


class ServerDecision(Enum):
    """Go on listening or stop, and why. `str` gives both as a text for people.

    Attributes:
      stop: the server sends all its stop.
      reason: why, in words.
    """

    LISTEN = False, "what is withheld may be too much"
    ALL = True, "all have ended the iteration"
    SHORT = (
        True,
        "what is withheld is short enough, for longer things would have come before the last one",
    )
    LATE = True, "what is withheld is short enough, for longer things would have come by now"

    def __init__(self, stop: bool, reason: str) -> None:
        self.stop = stop
        self.reason = reason

    def __str__(self) -> str:
        return f"{'stop' if self.stop else 'listen'}: {self.reason}"


@dataclass(frozen=True, slots=True)
class ServerState:
    """State of `ServerPolicy`: an iteration, and how far the model moved in those before.

    Attributes:
      pace, shift: the iteration's timer.
      began: when it was opened, in seconds.
      ended: how many ranks have ended it.
      shortest: norm of the shortest that was sent; infinite: nothing was.
      total: norm of the sum of what all ranks have sent last.
      moved: squared norms of the last moves, newest last.
    """

    pace: float = 1.0
    shift: float = 0.0
    began: float = 0.0
    ended: int = 0
    shortest: float = math.inf
    total: float = 0.0
    moved: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerPolicy:
    """Stops as soon as the norm of all that is withheld cannot exceed what is allowed. Give one test or the
    other.

    Args:
      history: allows what the last moves of the model do (LAG's right-hand side); None: the other test.
      share: allows so much of the norm of the sum of what was sent last, 0 or more; needs no history.
      silence: count silence as knowledge: stop as soon as the timer of anything too long would have rung. An
        iteration may then end with nothing sent. False: judge only by the last that was received.
      late_s: how long after its timer a message may come in: the way to a rank and back, differences of
        clocks and of computing times. Too little costs savings, not truth: see `Ordered`.

    Raises: UsageError unless exactly one test is given.
    Source: as `Ordered`; the constants follow from the descent lemma for L-smooth functions: with steps alpha
      on the sum, weights `history.share * history.window <= 1 - alpha L`, or `share² <= 1 - alpha L`.
    """

    history: Moves | None = None
    share: float | None = None
    silence: bool = True
    late_s: float = 0.0

    def __post_init__(self) -> None:
        if (self.history is None) == (self.share is None) or (self.share is not None and self.share < 0):
            raise UsageError(f"{self!r}: give either history=Moves(...) or share, 0 or more")

    def start(self) -> ServerState:
        """The state before the first iteration."""
        return ServerState()

    def handle(self, event: Event, state: ServerState, now: float) -> ServerState:
        """Begins an iteration, counts who has ended it, and keeps the norms of moves."""
        if isinstance(event, IterationStarted):
            return ServerState(event.pace, event.shift, now, 0, math.inf, state.total, state.moved)
        if isinstance(event, ContributionReceived):
            norm = math.inf if event.norm is None else event.norm
            shortest = min(state.shortest, norm)
            return replace(state, ended=state.ended + 1, shortest=shortest, total=event.total)
        if isinstance(event, StepDone) and self.history is not None:
            return replace(state, moved=self.history.after(state.moved, event.norm))
        return state

    def allowed(self, state: ServerState) -> float:
        """How long the sum of what is withheld may be."""
        if self.history is not None:
            return self.history.allowed(state.moved)
        assert self.share is not None  # one of the two is given
        return self.share * state.total

    def level(self, state: ServerState, size: int) -> float:
        """How long each of the withheld may be then; infinite if there are none."""
        withheld = size - state.ended
        return self.allowed(state) / withheld if withheld else math.inf

    def poll(self, state: ServerState, size: int, now: float) -> ServerDecision:
        """Whether the server of `size` ranks has received enough at `now` (seconds)."""
        if state.ended == size:
            return ServerDecision.ALL
        if state.shortest <= self.level(state, size):
            return ServerDecision.SHORT
        if now >= self.due(state, size):
            return ServerDecision.LATE
        return ServerDecision.LISTEN

    def due(self, state: ServerState, size: int) -> float:
        """When `poll` decides otherwise though nothing is received, in seconds; infinite: never."""
        if not self.silence or state.ended == size:
            return math.inf
        return state.began + self.late_s + Timer(state.pace, state.shift).expires(self.level(state, size))
