"""Who runs which task, decided without a clock: deaths, stragglers, speculation.

A task is a pure function of its payload, so it may run more than once, and counts once. Each time it is given
to a worker it is a *copy* with a number of its own. A task that is late gets a second, *speculative* copy.

    a task is   moved by                                                  to
    WAITING     a worker is idle: those of lost workers first             RUNNING
    RUNNING     its only copy is lost with its worker                     WAITING
                a copy returns: its result counts                         COUNTED

    a worker is moved by                                                  to
    STARTING    its process is ready                                      IDLE
    IDLE        a task waits; else one is late and has one copy           BUSY
    BUSY        its copy returns                                          IDLE
                its task is counted by the other copy                     UNNEEDED
                its copy is speculative, and late many times over         ENDED
    UNNEEDED    its copy returns, and is thrown away                      IDLE
                the grace is over                                         ENDED
    any         its process is lost                                       ENDED, or FAILED after `MOST_STARTS`
                                                                          losses before it was ready
    ENDED       poll replaces its process                                 STARTING

All is over when every task is counted, the caller has enough, a task raises, a task has lost `most_losses`
processes (it may be what ends them), all workers are FAILED, or the deadline passes. Nothing is given out
then, and nothing that comes counts.

Events may come twice, and late: a copy that is no longer under way is not known. The caller says nothing of a
process after its loss or its replacement but what its copies returned.

Where both copies of a task hang, the speculative one is given up and made again, each time after twice as
long. The first one stays: a task that takes very long is not begun anew.

What cannot happen: a task counts twice; a third copy of a task runs; a speculative copy goes out while a task
waits; a worker has two copies.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from tweed.workloads.tasks.events import (
    Action,
    End,
    Enough,
    Event,
    Lost,
    Raised,
    Ready,
    Replace,
    Returned,
    Run,
    Why,
)
from tweed.workloads.tasks.lateness import Lateness

#: Losses of a worker's process, each before it was ready, after which it is not started again.
MOST_STARTS = 3


class State(Enum):
    """What a worker is about."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    UNNEEDED = "unneeded"
    ENDED = "ended"
    FAILED = "failed"


class Copy(NamedTuple):
    """A copy that is under way."""

    number: int
    task: int
    worker: int
    since: float
    is_speculative: bool


@dataclass(slots=True)
class _Worker:
    """A worker: its copy, if any, until when that may run, and losses before it was ready."""

    state: State = State.STARTING
    copy: int | None = None
    until: float = math.inf
    losses: int = 0


@dataclass(slots=True)
class Planner:
    """The state machine above. All times are in seconds of one clock of the caller's.

    Args:
      tasks: how many there are, numbered from 0.
      workers: how many there are, numbered from 0. Their first processes are started by the caller.
      deadline: when all is over at the latest.
      most_losses: processes that a task may lose.
      lateness: learns when a task is late.

    Attributes:
      results: what counts, by task, in the order in which it came.
      end: why all is over; None: it is not.
      speculative: how many such copies there were.

    Cost: an event or a poll takes time that grows with the number of workers, not with that of tasks.
    """

    tasks: int
    workers: int
    deadline: float = math.inf
    most_losses: int = 3
    lateness: Lateness = field(default_factory=Lateness)
    results: dict[int, Any] = field(default_factory=dict)
    end: End | None = None
    speculative: int = 0
    _waiting: deque[int] = field(default_factory=deque)
    _workers: list[_Worker] = field(default_factory=list)
    _copies: dict[int, Copy] = field(default_factory=dict)
    _losses: Counter[int] = field(default_factory=Counter)
    _speculations: Counter[int] = field(default_factory=Counter)
    _given: int = 0

    def __post_init__(self) -> None:
        self._waiting.extend(range(self.tasks))
        self._workers = [_Worker() for _ in range(self.workers)]
        self._finish_if_complete()

    def handle(self, event: Event, now: float) -> None:
        """Something has happened, at `now`."""
        if self.end is not None:
            return
        match event:
            case Ready(worker):
                self._ready(self._workers[worker])
            case Returned(number, value):
                if copy := self._released(number):
                    self._count(copy, value, now)
            case Raised(number, text):
                if copy := self._released(number):
                    self.end = End(Why.RAISED, copy.task, text)
            case Lost(worker, why):
                self._lose(self._workers[worker], why)
            case Enough():
                self.end = End(Why.ENOUGH)

    def poll(self, now: float) -> list[Action]:
        """What is to be done at `now`, each action once; nothing once all is over."""
        if self.end is None and now >= self.deadline:
            self.end = End(Why.DEADLINE)
        if self.end is not None:
            return []
        return [*self._replacements(now), *self._assignments(now)]

    def next_at(self) -> float:
        """When to poll again if nothing happens before."""
        times = [self.deadline, *(worker.until for worker in self._workers)]
        if any(worker.state is State.IDLE for worker in self._workers):
            times += [copy.since + self.lateness.late_after_s for copy in self._only_copies()]
        return min(times)

    def under_way(self) -> list[Copy]:
        """Copies that are needed and under way, the oldest first."""
        return [copy for copy in self._copies.values() if copy.task not in self.results]

    def state(self, worker: int) -> State:
        """What this worker is about."""
        return self._workers[worker].state

    def is_busy(self, worker: int) -> bool:
        """Whether this worker has a copy that has not ended."""
        return self._workers[worker].copy is not None

    def _ready(self, worker: _Worker) -> None:
        if worker.state is State.STARTING:
            worker.state, worker.losses = State.IDLE, 0

    def _released(self, number: int) -> Copy | None:
        """The copy that has ended on its worker, if its task is not counted yet."""
        copy = self._copies.pop(number, None)
        if copy is None:
            return None
        self._workers[copy.worker] = _Worker(State.IDLE)
        return None if copy.task in self.results else copy

    def _count(self, copy: Copy, value: Any, now: float) -> None:
        self.results[copy.task] = value
        self.lateness.ran(now - copy.since)
        others = [other for other in self._copies.values() if other.task == copy.task]
        for other in others:
            worker = self._workers[other.worker]
            worker.state, worker.until = State.UNNEEDED, now + self.lateness.grace_s
        if copy.is_speculative or any(other.is_speculative for other in others):
            self.lateness.speculated(useful=copy.is_speculative)
        self._finish_if_complete()

    def _finish_if_complete(self) -> None:
        if len(self.results) == self.tasks:
            self.end = End(Why.COMPLETE)

    def _lose(self, worker: _Worker, why: str) -> None:
        if worker.state in (State.ENDED, State.FAILED):
            return
        worker.losses += worker.state is State.STARTING
        copy = None if worker.copy is None else self._copies.pop(worker.copy)
        worker.state = State.FAILED if worker.losses == MOST_STARTS else State.ENDED
        worker.copy, worker.until = None, math.inf
        if all(each.state is State.FAILED for each in self._workers):
            self.end = End(Why.NO_WORKERS, None, why)
        elif copy is not None and copy.task not in self.results:
            self._lose_copy(copy.task, why)

    def _lose_copy(self, task: int, why: str) -> None:
        self._losses[task] += 1
        if self._losses[task] >= self.most_losses:
            self.end = End(Why.FATAL, task, why)
        elif others := [other for other in self._copies.values() if other.task == task]:
            self._workers[others[0].worker].until = math.inf  # it is the first copy now
        else:
            self._waiting.appendleft(task)

    def _replacements(self, now: float) -> Iterator[Replace]:
        for number, worker in enumerate(self._workers):
            if worker.state is State.ENDED or now >= worker.until:
                if worker.copy is not None:
                    del self._copies[worker.copy]
                worker.state, worker.copy, worker.until = State.STARTING, None, math.inf
                yield Replace(number)

    def _assignments(self, now: float) -> Iterator[Run]:
        idle = [number for number, worker in enumerate(self._workers) if worker.state is State.IDLE]
        late = deque[int]()
        if len(idle) > len(self._waiting):
            late.extend(
                copy.task for copy in self._only_copies() if now >= copy.since + self.lateness.late_after_s
            )
        for worker in idle:
            if self._waiting:
                yield self._assigned(worker, self._waiting.popleft(), now, is_speculative=False)
            elif late:
                yield self._speculated(worker, late.popleft(), now)

    def _only_copies(self) -> list[Copy]:
        """Copies that are needed and alone for their tasks, the oldest first."""
        needed = self.under_way()
        copies = Counter(copy.task for copy in needed)
        return [copy for copy in needed if copies[copy.task] == 1]

    def _speculated(self, number: int, task: int, now: float) -> Run:
        run = self._assigned(number, task, now, is_speculative=True)
        self._workers[number].until = now + self.lateness.hopeless_after_s * 2 ** self._speculations[task]
        self._speculations[task] += 1
        self.speculative += 1
        return run

    def _assigned(self, number: int, task: int, now: float, *, is_speculative: bool) -> Run:
        copy = Copy(self._given, task, number, now, is_speculative)
        self._given += 1
        self._copies[copy.number] = copy
        worker = self._workers[number]
        worker.state, worker.copy = State.BUSY, copy.number
        return Run(number, copy.number, task)
