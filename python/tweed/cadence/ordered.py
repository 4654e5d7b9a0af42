"""Ordered transmission, a rank's side: who has changed most sends first, and the others may be spared.

One iteration: the server opens it; each rank works out what it has to send, and waits the longer the shorter
that is; what is sent reaches the server, longest first; as soon as the rest is short enough, the server stops
it (`tweed.cadence.server_policy`). Each rank ends the iteration with exactly one message: what it has to
send, or that it is silent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from tweed.cadence.base import Cadence, Decision, Event, IterationStarted, Ready, ServerStopped, Stop
from tweed.cadence.server_policy import ServerPolicy
from tweed.cadence.timers import Timer, within


@dataclass(frozen=True, slots=True)
class OrderedState:
    """State of `Ordered`.

    Attributes:
      pace, shift: the timer of this iteration.
      began: when this rank was ready, in seconds.
      norm: norm of what it has to send; None: it is not ready, or has ended the iteration.
      level: what the server spares; None: it has not stopped.
      stopped: one model is wanted now.
    """

    pace: float = 1.0
    shift: float = 0.0
    began: float = 0.0
    norm: float | None = None
    level: float | None = None
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Ordered(Cadence[OrderedState]):
    """Waits for its turn, and sends unless the server has received enough before.

    The server's `ServerStopped` holds how long the longest may be that is withheld. A rank with more to send
    then sends it at once, however early its timer was stopped. So what is withheld never exceeds what the
    server allows, even where clocks differ or a message is late: only the order, and so the saving, suffers.

    Args:
      policy: the server's side: when it has received enough.
      window_s: seconds within which all have sent what they have, if the server does not stop them.

    Cost: per iteration the server's two broadcasts, a message per rank, and up to `window_s` of waiting.
    Source: Chen, Blum, Sadler, "Ordered gradient approach for communication-efficient distributed learning",
      SPAWC 2020. The level in the stop message is ours.
    """

    policy: ServerPolicy
    window_s: float = 0.05

    exchanges: ClassVar[frozenset[str]] = frozenset({"gradient"})
    reason: ClassVar[str] = "it orders gradients by how much they have changed"
    needs_norm: ClassVar[bool] = True
    may_be_silent: ClassVar[bool] = True
    keeps_last: ClassVar[bool] = True

    def start(self) -> OrderedState:
        """The state before the first iteration."""
        return OrderedState()

    def iteration_started(self, total: float, size: int) -> IterationStarted:
        """How an iteration of `size` ranks begins: what is as long as a rank's part of the last sum, of
        norm `total`, is sent in the middle of the window."""
        timer = within(self.window_s, total / size if total else 1.0)
        return IterationStarted(timer.pace, timer.shift)

    def handle(self, event: Event, state: OrderedState, now: float) -> OrderedState:
        """Keeps the iteration's timer, when this rank was ready, and what the server spares."""
        if isinstance(event, IterationStarted):
            return OrderedState(pace=event.pace, shift=event.shift)
        if isinstance(event, Ready):
            return replace(state, norm=event.norm, began=now, stopped=False)
        if isinstance(event, ServerStopped):
            return replace(state, level=event.level)
        if isinstance(event, Stop):
            return replace(state, norm=None, stopped=True)
        return replace(state, stopped=False)

    def poll(self, state: OrderedState, now: float) -> tuple[Decision, OrderedState]:
        """To send in turn, or when the server has not received enough without; else silence, or to wait."""
        if state.norm is None:
            return (Decision.AGREED if state.stopped else Decision.UNMEASURED), replace(state, stopped=False)
        ended = replace(state, norm=None)
        if state.norm == 0:
            return Decision.NOTHING, ended
        if state.level is not None:
            return (Decision.ABOVE_LEVEL if state.norm > state.level else Decision.ENOUGH), ended
        if now >= self.due(state):
            return Decision.TIMER_EXPIRED, ended
        return Decision.WAITING, state

    def due(self, state: OrderedState) -> float:
        """When `poll` may decide otherwise though nothing happens, in seconds; infinite: never."""
        if state.norm is None:
            return math.inf
        return state.began + Timer(state.pace, state.shift).expires(state.norm)
