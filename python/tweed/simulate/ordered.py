"""Ordered transmission under a virtual clock: ranks and a server that share one channel.

The state machines are those that run live (`tweed.cadence.ordered`, `server_policy`); here are the clock, the
channel, and what disturbs them: slots, collisions, latency, clocks that differ.

    cell = Cell(Ordered(ServerPolicy(share=0.9)), size=20, air=Air(send_s=1e-3))
    iteration = cell.iterate(norms, receive)      # lengths of what ranks have to send; receive(rank): it came
    cell.moved(norm)                              # how far the model went then
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Any

from tweed.cadence import ContributionReceived, Decision, Joined, Ordered, Ready, ServerStopped, StepDone
from tweed.rng import uniform
from tweed.simulate.clock import Clock


@dataclass(frozen=True, slots=True)
class Air:
    """The channel that all share.

    Args:
      send_s: how long a message with content occupies it; others wait until it is free.
      latency_s: of every message, one way. What is only "stop" or "silent" takes this and nothing more.
      slot_s: messages begin at multiples of this; who begins in the same slot collides, and tries again after
        a random number of slots, of twice as many each time. 0: no slots, and no collisions.
      skew_s: by how much each rank's timer is late, by rank; empty: none is.
      seed: of the random waits.
    """

    send_s: float = 0.0
    latency_s: float = 0.0
    slot_s: float = 0.0
    skew_s: Sequence[float] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Iteration:
    """What came of one iteration.

    Attributes:
      sent: ranks in the order in which the server received from them.
      silent: ranks that ended the iteration in silence.
      level: the longest that a silent rank was allowed to have; infinite if all had ended before the server
        stopped.
      allowed: how long the sum of all that is withheld might have been at the stop.
      seconds: from its opening until the last rank's message was there.
      collisions: messages that were destroyed.
    """

    sent: tuple[int, ...]
    silent: tuple[int, ...]
    level: float
    allowed: float
    seconds: float
    collisions: int


class _Kind(IntEnum):
    """What happens; at the same time in this order."""

    ARRIVE = 0
    READY = 1
    WAKE = 2
    SEND = 3
    STOPPED = 4
    LISTEN = 5


#: Applies what a rank sends; returns the length of the sum of what all have sent last.
Receive = Callable[[int], float]


class Cell:
    """A server and `size` ranks. All state is in the object; the clock is virtual and goes on from call to
    call."""

    def __init__(self, cadence: Ordered, size: int, air: Air | None = None) -> None:
        self.cadence = cadence
        self.size = size
        self.air = air or Air()
        self.now = 0.0
        self.server = cadence.policy.start()
        joined = (Joined(rank, size) for rank in range(size))
        self.ranks = [cadence.handle(event, cadence.start(), 0.0) for event in joined]

    def iterate(self, norms: Sequence[float], receive: Receive) -> Iteration:
        """One iteration, in which each rank has something of length `norms[rank]` to send."""
        opened = self.cadence.iteration_started(self.server.total, self.size)
        self.server = self.cadence.policy.handle(opened, self.server, self.now)
        self.ranks = [self.cadence.handle(opened, state, self.now) for state in self.ranks]
        return _Run(self, norms, receive).run()

    def moved(self, norm: float) -> None:
        """The model went a step of length `norm`; for the server."""
        self.server = self.cadence.policy.handle(StepDone(norm), self.server, self.now)


@dataclass(slots=True)
class _Run:
    """One iteration on its way."""

    cell: Cell
    norms: Sequence[float]
    receive: Receive
    sent: list[int] = field(default_factory=list)
    silent: list[int] = field(default_factory=list)
    level: float | None = None
    allowed: float = 0.0
    busy_until: float = -math.inf
    tries: dict[int, int] = field(default_factory=dict)
    collisions: int = 0
    total: float = 0.0
    starts: dict[float, list[int]] = field(default_factory=dict)  # ranks that begin to send, by when
    clock: Clock = field(init=False)
    _planned: int = 0

    def run(self) -> Iteration:
        cell, began = self.cell, self.cell.now
        self.clock, self.total = Clock(began), cell.server.total
        for rank in range(cell.size):
            skew = cell.air.skew_s[rank] if cell.air.skew_s else 0.0
            self._plan(max(began, began + cell.air.latency_s + skew), _Kind.READY, partial(self._ready, rank))
        self._listen()
        while len(self.sent) + len(self.silent) < cell.size:
            self.clock.run_next()
        cell.now = self.clock.now
        level = math.inf if self.level is None else self.level
        seconds = cell.now - began
        return Iteration(tuple(self.sent), tuple(self.silent), level, self.allowed, seconds, self.collisions)

    def _plan(self, at: float, kind: _Kind, do: Callable[[], None]) -> None:
        self._planned += math.isfinite(at)
        self.clock.at(at, do, kind)

    def _plan_send(self, at: float, rank: int) -> None:
        """Who begins at the same time as others does so together with them."""
        self._planned += 1
        if at not in self.starts:
            self.starts[at] = []
            self.clock.at(at, lambda: self._send(self.starts.pop(at)), _Kind.SEND)
        self.starts[at].append(rank)

    # Ranks

    def _ready(self, rank: int) -> None:
        cadence, now = self.cell.cadence, self.clock.now
        state = cadence.handle(Ready(self.norms[rank]), self.cell.ranks[rank], now)
        self._plan(self._slotted(cadence.due(state)), _Kind.WAKE, partial(self._expire, rank))
        self._decide(rank, state)

    def _stopped(self, rank: int) -> None:
        """The server's stop has reached it."""
        assert self.level is not None  # the server has stopped
        stop = ServerStopped(self.level)
        self._decide(rank, self.cell.cadence.handle(stop, self.cell.ranks[rank], self.clock.now))

    def _expire(self, rank: int) -> None:
        """Its time has come."""
        if self._busy():
            # in slots: as long after the message as it expired after its beginning, or all would collide
            apart = self.clock.now - self.busy_until + self.cell.air.send_s if self.cell.air.slot_s else 0.0
            self._plan(self._slotted(self.busy_until + apart), _Kind.WAKE, partial(self._expire, rank))
        else:
            self._decide(rank, self.cell.ranks[rank])

    def _decide(self, rank: int, state: Any) -> None:
        now = self.clock.now
        decision, self.cell.ranks[rank] = self.cell.cadence.poll(state, now)
        if decision.silent:
            self._plan(now + self.cell.air.latency_s, _Kind.ARRIVE, partial(self._arrive, rank, None))
        elif decision in (Decision.TIMER_EXPIRED, Decision.ABOVE_LEVEL):
            self._begin(rank, now)

    # The channel

    def _begin(self, rank: int, now: float) -> None:
        if self.cell.air.slot_s:  # others may begin in the same slot
            self._plan_send(self._slotted(now), rank)
        else:
            self._send([rank])

    def _busy(self) -> bool:
        """Whether a message is on its way; times at the edge of a slot are equal but for rounding."""
        return self.clock.now < self.busy_until - 1e-6 * self.cell.air.slot_s

    def _slotted(self, at: float) -> float:
        slot = self.cell.air.slot_s
        if not slot or not math.isfinite(at):
            return at
        return math.ceil(at / slot - 1e-6) * slot

    def _send(self, ranks: list[int]) -> None:
        air, now = self.cell.air, self.clock.now
        if self._busy():
            for rank in ranks:
                self._plan_send(self._slotted(self.busy_until), rank)
            return
        self.busy_until = now + air.send_s
        if len(ranks) > 1 and air.slot_s:
            self._collide(ranks)
            return
        there = partial(self._arrive, ranks[0], self.norms[ranks[0]])
        self._plan(self.busy_until + air.latency_s, _Kind.ARRIVE, there)
        for rank in ranks[1:]:
            self._plan_send(self.busy_until, rank)

    def _collide(self, ranks: list[int]) -> None:
        self.collisions += len(ranks)
        for rank in ranks:
            tries = self.tries[rank] = self.tries.get(rank, 0) + 1
            draw = uniform(self.cell.air.seed, rank, tries, self._planned)
            slots = int(draw * 2 ** min(tries, 10))
            self._plan_send(self._slotted(self.busy_until + slots * self.cell.air.slot_s), rank)

    # The server

    def _arrive(self, rank: int, norm: float | None) -> None:
        if norm is not None:
            self.total = self.receive(rank)
        (self.silent if norm is None else self.sent).append(rank)
        arrival = ContributionReceived(norm, self.total)
        self.cell.server = self.cell.cadence.policy.handle(arrival, self.cell.server, self.clock.now)
        self._judge()

    def _judge(self) -> None:
        """Stops once, if the server has received enough."""
        cell, policy = self.cell, self.cell.cadence.policy
        if self.level is not None:
            return
        if not policy.poll(cell.server, cell.size, self.clock.now).stop:
            self._listen()
            return
        if len(self.sent) + len(self.silent) < cell.size:
            self.level, self.allowed = policy.level(cell.server, cell.size), policy.allowed(cell.server)
            for rank in sorted(set(range(cell.size)) - {*self.sent, *self.silent}):
                self._plan(self.clock.now + cell.air.latency_s, _Kind.STOPPED, partial(self._stopped, rank))

    def _listen(self) -> None:
        due = self.cell.cadence.policy.due(self.cell.server, self.cell.size)
        self._plan(max(due, self.clock.now), _Kind.LISTEN, self._judge)
