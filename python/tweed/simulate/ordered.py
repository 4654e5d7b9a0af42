"""Ordered transmission under a virtual clock: ranks and a server that share one channel.

The state machines are those that run live (`tweed.cadence.ordered`, `server_policy`); here are the clock, the
channel, and what disturbs them: slots, collisions, latency, clocks that differ.

    cell = Cell(Ordered(ServerPolicy(share=0.9)), size=20, air=Air(send_s=1e-3))
    iteration = cell.iterate(norms, receive)      # lengths of what ranks have to send; receive(rank): it came
    cell.moved(norm)                              # how far the model went then
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from tweed.cadence import ContributionReceived, Decision, Joined, Ordered, Ready, ServerStopped, StepDone
from tweed.rng import uniform


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


class _Happening(NamedTuple):
    at: float
    kind: _Kind
    number: int
    rank: int
    norm: float | None = None


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
    _heap: list[_Happening] = field(default_factory=list)
    _number: int = 0

    def run(self) -> Iteration:
        cell, began = self.cell, self.cell.now
        self.total = cell.server.total
        for rank in range(cell.size):
            skew = cell.air.skew_s[rank] if cell.air.skew_s else 0.0
            self._push(max(began, began + cell.air.latency_s + skew), _Kind.READY, rank)
        self._listen()
        while len(self.sent) + len(self.silent) < cell.size:
            self._happen(heapq.heappop(self._heap))
        level = math.inf if self.level is None else self.level
        seconds = cell.now - began
        return Iteration(tuple(self.sent), tuple(self.silent), level, self.allowed, seconds, self.collisions)

    def _push(self, at: float, kind: _Kind, rank: int, norm: float | None = None) -> None:
        if math.isfinite(at):
            self._number += 1
            heapq.heappush(self._heap, _Happening(at, kind, self._number, rank, norm))

    def _happen(self, happening: _Happening) -> None:
        self.cell.now = now = happening.at
        rank = happening.rank
        if happening.kind is _Kind.ARRIVE:
            self._arrive(rank, happening.norm)
        elif happening.kind is _Kind.SEND:
            self._send([rank, *self._others(happening)])
        elif happening.kind is _Kind.LISTEN:
            self._judge()
        else:
            self._wake(happening, now)

    def _wake(self, happening: _Happening, now: float) -> None:
        """A rank is ready, its time has come, or the server's stop has reached it."""
        cadence, rank = self.cell.cadence, happening.rank
        state = self.cell.ranks[rank]
        if happening.kind is _Kind.READY:
            state = cadence.handle(Ready(self.norms[rank]), state, now)
            self._push(self._slotted(cadence.due(state)), _Kind.WAKE, rank)
        elif happening.kind is _Kind.STOPPED:
            assert self.level is not None  # the server has stopped
            state = cadence.handle(ServerStopped(self.level), state, now)
        elif self._busy():
            # in slots: as long after the message as it expired after its beginning, or all would collide
            apart = now - self.busy_until + self.cell.air.send_s if self.cell.air.slot_s else 0.0
            self._push(self._slotted(self.busy_until + apart), _Kind.WAKE, rank)
            return
        decision, self.cell.ranks[rank] = cadence.poll(state, now)
        if decision.silent:
            self._push(now + self.cell.air.latency_s, _Kind.ARRIVE, rank)
        elif decision in (Decision.TIMER_EXPIRED, Decision.ABOVE_LEVEL):
            self._begin(rank, now)

    def _begin(self, rank: int, now: float) -> None:
        if self.cell.air.slot_s:  # others may begin in the same slot
            self._push(self._slotted(now), _Kind.SEND, rank)
        else:
            self._send([rank])

    def _busy(self) -> bool:
        """Whether a message is on its way; times at the edge of a slot are equal but for rounding."""
        return self.cell.now < self.busy_until - 1e-6 * self.cell.air.slot_s

    def _slotted(self, at: float) -> float:
        slot = self.cell.air.slot_s
        if not slot or not math.isfinite(at):
            return at
        return math.ceil(at / slot - 1e-6) * slot

    def _others(self, first: _Happening) -> list[int]:
        """The ranks that begin to send at the same time."""
        others = []
        while self._heap and self._heap[0].kind is _Kind.SEND and self._heap[0].at == first.at:
            others.append(heapq.heappop(self._heap).rank)
        return others

    def _send(self, ranks: list[int]) -> None:
        air, now = self.cell.air, self.cell.now
        if self._busy():
            for rank in ranks:
                self._push(self._slotted(self.busy_until), _Kind.SEND, rank)
            return
        self.busy_until = now + air.send_s
        if len(ranks) > 1 and air.slot_s:
            self._collide(ranks)
            return
        self._push(self.busy_until + air.latency_s, _Kind.ARRIVE, ranks[0], self.norms[ranks[0]])
        for rank in ranks[1:]:
            self._push(self.busy_until, _Kind.SEND, rank)

    def _collide(self, ranks: list[int]) -> None:
        self.collisions += len(ranks)
        for rank in ranks:
            tries = self.tries[rank] = self.tries.get(rank, 0) + 1
            draw = uniform(self.cell.air.seed, rank, tries, self._number)
            slots = int(draw * 2 ** min(tries, 10))
            self._push(self._slotted(self.busy_until + slots * self.cell.air.slot_s), _Kind.SEND, rank)

    def _arrive(self, rank: int, norm: float | None) -> None:
        if norm is not None:
            self.total = self.receive(rank)
        (self.silent if norm is None else self.sent).append(rank)
        arrival = ContributionReceived(norm, self.total)
        self.cell.server = self.cell.cadence.policy.handle(arrival, self.cell.server, self.cell.now)
        self._judge()

    def _judge(self) -> None:
        """Stops once, if the server has received enough."""
        cell, policy = self.cell, self.cell.cadence.policy
        if self.level is not None:
            return
        if not policy.poll(cell.server, cell.size, cell.now).stop:
            self._listen()
            return
        if len(self.sent) + len(self.silent) < cell.size:
            self.level, self.allowed = policy.level(cell.server, cell.size), policy.allowed(cell.server)
            for rank in sorted(set(range(cell.size)) - {*self.sent, *self.silent}):
                self._push(cell.now + cell.air.latency_s, _Kind.STOPPED, rank)

    def _listen(self) -> None:
        due = self.cell.cadence.policy.due(self.cell.server, self.cell.size)
        self._push(max(due, self.cell.now), _Kind.LISTEN, -1)
