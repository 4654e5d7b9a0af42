"""Send only when what there is to send has changed enough: censoring, as in LAG."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tweed.cadence.base import Cadence, Decision, Event, Joined, Ready, StepDone, Stop
from tweed.cadence.moves import Moves


@dataclass(frozen=True, slots=True)
class EventTriggeredState:
    """State of `EventTriggered`.

    Attributes:
      size: how many ranks contribute.
      moved: squared norms of the last steps, newest last.
      norm: norm of what there is to send; None: not measured since the last exchange.
      stopped: one model is wanted now.
    """

    size: int = 1
    moved: tuple[float, ...] = ()
    norm: float | None = None
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class EventTriggered(Cadence[EventTriggeredState]):
    """All meet every step, and a rank contributes if what it has to send is longer than `moves` and the
    number of ranks allow.

    With `compress=LazyAggregation(...)`, what a silent rank sent last still counts, as in LAG's rule for
    workers (LAG-WK): send if |change|² > (share · sum of the last `window` squared steps) / (rate · ranks)².

    Args:
      moves: what counts as enough.

    Cost: per step the small messages of silent ranks; and what is sent.
    Source: Chen, Giannakis, Sun, Yin, "LAG: lazily aggregated gradient for communication-efficient
      distributed learning", 2018, rule of LAG-WK.
    """

    moves: Moves

    exchanges: ClassVar[frozenset[str]] = frozenset({"gradient", "step", "difference"})
    reason: ClassVar[str] = "a silent rank has no model to contribute"
    needs_norm: ClassVar[bool] = True
    may_be_silent: ClassVar[bool] = True

    def start(self) -> EventTriggeredState:
        """The state before the first step."""
        return EventTriggeredState()

    def handle(self, event: Event, state: EventTriggeredState, now: float) -> EventTriggeredState:
        """Keeps the norms of steps and of what there is to send."""
        if isinstance(event, Joined):
            return replace(state, size=event.size)
        if isinstance(event, StepDone):
            return replace(state, moved=self.moves.after(state.moved, event.norm), stopped=False)
        if isinstance(event, Ready):
            return replace(state, norm=event.norm, stopped=False)
        return replace(state, stopped=isinstance(event, Stop))

    def poll(self, state: EventTriggeredState, now: float) -> tuple[Decision, EventTriggeredState]:
        """To exchange whenever the norm is there; to contribute if it is long enough."""
        if state.stopped:
            return Decision.AGREED, replace(state, stopped=False, norm=None)
        if state.norm is None:
            return Decision.UNMEASURED, state
        enough = state.norm > self.moves.allowed(state.moved) / state.size
        return (Decision.NEWS if enough else Decision.NO_NEWS), replace(state, norm=None)
