"""The planner on a virtual clock: workers that die, straggle and hang, and messages that are lost.

    planner ── Run ──> worker ── Returned ──> planner
        a message that is lost, or whose acknowledgement is, is sent again: it comes late, or twice
        a process may end while it starts or within a task, or hang for good
        a process that was replaced is heard of no more, but for what it returned before

A seed draws all of it: the same conditions and seed give the same run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import inf, log

from tweed.rng import uniform
from tweed.simulate.clock import Clock
from tweed.workloads.tasks.events import End, Enough, Event, Lost, Ready, Replace, Returned, Run
from tweed.workloads.tasks.planner import Planner, State

#: What is drawn, each apart from the others.
_TIME, _SLOW, _DEATH, _WHEN, _HANG, _START, _MESSAGE, _ACKNOWLEDGED = range(8)


@dataclass(frozen=True, slots=True)
class Conditions:
    """How tasks, workers and messages are. Probabilities are from 0 to 1, times in seconds.

    Attributes:
      task_s: how long a task takes in the mean where nothing is slow: half of it, and an exponential time.
      tasks_s: by task, how long it takes where nothing is slow; None: drawn around `task_s`.
      slow, slow_factor: a process is slow with this probability, and takes so many times as long.
      death: that a copy ends its process before it returns. A task does so twice at most, but for `fatal`.
      hang: that a copy's process hangs for good.
      start_death: that a process ends while it starts.
      loss: that a message, or its acknowledgement, is lost; then it is sent again after `repeat_s`.
      fatal: a task that ends each process which runs it; None: there is none.
      enough: results that are enough; None: all.
      deadline_s: when all is over at the latest.
      start_s, latency_s: how long a process takes to start, and a message to arrive.
    """

    tasks: int
    workers: int
    task_s: float = 1.0
    tasks_s: Sequence[float] | None = None
    slow: float = 0.0
    slow_factor: float = 10.0
    death: float = 0.0
    hang: float = 0.0
    start_death: float = 0.0
    loss: float = 0.0
    fatal: int | None = None
    enough: int | None = None
    deadline_s: float = inf
    start_s: float = 0.1
    latency_s: float = 0.01
    repeat_s: float = 0.2


@dataclass(slots=True)
class Result:
    """What came of a run.

    Attributes:
      end: why all was over, `seconds` when.
      counted: tasks, in the order in which they counted.
      results: what counts, by task: the number of the copy that it is of.
      ran: by task, the numbers of its copies, in order; `speculative` of all copies were that.
      together: the most copies of a task that were under way at a time, for the planner.
      replaced, deaths: processes that were replaced, and those that died before they were.
      hung: copies that hang, by the worker which they hold until its process is replaced.
      hung_copies: all of them.
      failed: workers that were given up.
    """

    end: End | None = None
    seconds: float = 0.0
    counted: list[int] = field(default_factory=list)
    results: dict[int, int] = field(default_factory=dict)
    ran: dict[int, list[int]] = field(default_factory=dict)
    speculative: int = 0
    together: int = 0
    replaced: int = 0
    deaths: int = 0
    hung: dict[int, int] = field(default_factory=dict)
    hung_copies: set[int] = field(default_factory=set)
    failed: int = 0


@dataclass(slots=True)
class _Process:
    """A worker's process: which one of all it is, and what it was given."""

    number: int
    is_there: bool = True
    seen: set[int] = field(default_factory=set)


class _Machines:
    """The workers, and the messages between them and the planner."""

    def __init__(self, conditions: Conditions, seed: int, make: Callable[..., Planner]) -> None:
        self.conditions, self.seed, self.clock, self.run = conditions, seed, Clock(), Result()
        deadline = conditions.deadline_s
        self.planner = make(conditions.tasks, conditions.workers, deadline)
        self._messages, self._processes = count(), count()
        self._deaths: dict[int, int] = {}
        self._workers = [self._process(worker) for worker in range(conditions.workers)]

    def drawn(self, *numbers: int) -> float:
        return uniform(self.seed, *numbers)

    def deliver(self, do: Callable[[], None]) -> None:
        """A message crosses: once, or again until an acknowledgement comes back."""
        number, loss = next(self._messages), self.conditions.loss
        for attempt in count():
            if self.drawn(_MESSAGE, number, attempt) >= loss:
                self.clock.after(self.conditions.latency_s + attempt * self.conditions.repeat_s, do)
                if self.drawn(_ACKNOWLEDGED, number, attempt) >= loss:
                    return

    def tell(self, event: Event) -> None:
        """The planner hears of an event, and what it wants is done."""
        self.planner.handle(event, self.clock.now)
        self.run.counted += [*self.planner.results][len(self.run.counted) :]
        wanted = self.conditions.enough
        if self.planner.end is None and wanted is not None and len(self.run.counted) >= wanted:
            self.planner.handle(Enough(), self.clock.now)
        self.act()

    def act(self) -> None:
        """What the planner wants."""
        for action in self.planner.poll(self.clock.now):
            if isinstance(action, Replace):
                self._replace(action.worker)
            else:
                self._send(action)
        copies = Counter(copy.task for copy in self.planner.under_way())
        self.run.together = max([self.run.together, *copies.values()])

    def _process(self, worker: int) -> _Process:
        process = _Process(next(self._processes))
        if self.drawn(_START, process.number) < self.conditions.start_death:
            self.clock.after(self.conditions.start_s, lambda: self._die(worker, process))
        else:
            self.clock.after(self.conditions.start_s, lambda: self._say(worker, process, Ready(worker)))
        return process

    def _replace(self, worker: int) -> None:
        self._workers[worker].is_there = False
        self._workers[worker] = self._process(worker)
        self.run.replaced += 1
        self.run.hung.pop(worker, None)

    def _die(self, worker: int, process: _Process) -> None:
        if process.is_there:
            process.is_there = False
            self.run.deaths += 1
            self._say(worker, process, Lost(worker, "died"))

    def _say(self, worker: int, process: _Process, event: Event) -> None:
        """An event of this process; of one that was replaced nothing is heard."""
        self.deliver(lambda: self.tell(event) if self._workers[worker] is process else None)

    def _send(self, action: Run) -> None:
        self.run.ran.setdefault(action.task, []).append(action.copy)
        process = self._workers[action.worker]
        self.deliver(lambda: self._begin(action, process))

    def _begin(self, action: Run, process: _Process) -> None:
        """The task comes to a process, perhaps not for the first time."""
        if not process.is_there or action.copy in process.seen:
            return
        process.seen.add(action.copy)
        if self.drawn(_HANG, action.copy) < self.conditions.hang:
            self.run.hung[action.worker] = action.copy
            self.run.hung_copies.add(action.copy)
            return
        seconds = self._seconds(action.task, process)
        if self._kills(action):
            within = seconds * self.drawn(_WHEN, action.copy)
            self.clock.after(within, lambda: self._die(action.worker, process))
        else:
            self.clock.after(seconds, lambda: self._return(action, process))

    def _return(self, action: Run, process: _Process) -> None:
        """What a process has sent arrives, even if it was replaced since."""
        if process.is_there:
            self.deliver(lambda: self.tell(Returned(action.copy, action.copy)))

    def _seconds(self, task: int, process: _Process) -> float:
        conditions = self.conditions
        is_slow = self.drawn(_SLOW, process.number) < conditions.slow
        if conditions.tasks_s is None:
            seconds = conditions.task_s / 2 * (1 - log(1 - self.drawn(_TIME, task)))
        else:
            seconds = conditions.tasks_s[task]
        return seconds * (conditions.slow_factor if is_slow else 1.0)

    def _kills(self, action: Run) -> bool:
        if action.task == self.conditions.fatal:
            return True
        deaths = self._deaths.get(action.task, 0)
        if deaths == 2 or self.drawn(_DEATH, action.copy) >= self.conditions.death:
            return False
        self._deaths[action.task] = deaths + 1
        return True


def simulate_tasks(conditions: Conditions, seed: int, make: Callable[..., Planner] = Planner) -> Result:
    """Runs the planner until all is over, or nothing can happen any more (then `end` is None).

    Args:
      make: makes the planner of tasks, workers and a deadline.

    Cost: about a tenth of a millisecond per task.
    """
    machines = _Machines(conditions, seed, make)
    machines.act()
    clock, planner = machines.clock, machines.planner
    while planner.end is None and min(clock.next_s(), planner.next_at()) < inf:
        if clock.next_s() <= planner.next_at():
            clock.run_next()
        else:
            clock.pass_to(planner.next_at())
            machines.act()
    run = machines.run
    run.end, run.seconds = planner.end, clock.now
    run.results, run.speculative = planner.results, planner.speculative
    run.failed = sum(planner.state(worker) is State.FAILED for worker in range(conditions.workers))
    return run
