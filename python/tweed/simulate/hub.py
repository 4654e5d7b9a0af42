"""A hub and its members on a virtual clock and a virtual network, with faults: the machines that run live.

    run = VirtualHub(Hub(when=Cache(10)), conditions, learn, apply)
    run.until(updates=1000)
    run.now, run.delays

Messages without a payload take a latency; payloads, sums and models share the links of both ends. A link that
breaks loses what is on it. Nothing sleeps, and the same arguments give the same run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tweed.aggregate import Question, of_range
from tweed.hub.machine import Hub, Offer, Payload, Step, Task, Worker
from tweed.hub.machine.actions import Abandon, Action, Ask, Tell
from tweed.hub.machine.aggregator import Aggregator
from tweed.hub.machine.events import Answered, Came, Event, Joined, Left, Passed, give
from tweed.hub.machine.model_source import HandOver, ModelSource
from tweed.hub.machine.worker import Compute
from tweed.hub.wire.messages import CancelGroup, FromHub, FromWorker, Gather, ModelRequest, Sum, control_bytes
from tweed.rng import uniform
from tweed.simulate.clock import Clock
from tweed.simulate.links import VirtualLinks

#: The hub as a node of the network, and its standby; members have numbers from 0 on.
HUB, STANDBY = -1, -2


class Job(NamedTuple):
    """What a member computes: `model` came with the task."""

    member: int
    compute: Compute
    model: Any


#: Of each job, in this order, what its member offers, and the value.
Learn = Callable[[Sequence[Job]], Sequence[tuple[Offer, Any]]]
#: Commits: lets the optimizer step, and returns the model as workers get it, and its bytes; None: before the
#: first step.
Apply = Callable[[Step | None], tuple[Any, int]]


def each(learn: Callable[[int, Compute, Any], tuple[Offer, Any]]) -> Learn:
    """`learn`, for one job after the other."""
    return lambda jobs: [learn(*job) for job in jobs]


@dataclass(frozen=True, slots=True)
class Conditions:
    """What members and network are like. Rates are in bytes per second, times in seconds.

    Args:
      members: how many.
      compute_s: for a member and its task, how long it computes.
      hub_rate: of the hub's link, in each direction, and of a standby's.
      rates: of a member's link, up from it and down to it.
      shares: for a node, a member's number or `HUB`, and the time: the share of its rates that it has, and
        until when. It is asked again then.
      latency_s: one way.
      cuts: how often each member's link breaks, per second; it is back after `away_s`.
      crashes: the share of breaks at which the member forgets all, too.
      answer_s: how long the hub takes to find out what a rule asks.
      seed: of the draws.
    """

    members: int
    compute_s: Callable[[int, int], float]
    hub_rate: float = 1e12
    rates: Callable[[int], tuple[float, float]] = lambda member: (1e12, 1e12)
    shares: Callable[[int, float], tuple[float, float]] = lambda node, now: (1.0, math.inf)
    latency_s: float = 0.0
    cuts: float = 0.0
    away_s: float = 1.0
    crashes: float = 0.0
    answer_s: float = 0.0
    seed: int = 0

    def rates_at(self, node: int, now: float) -> tuple[float, float, float]:
        """What a node has up and down, and until when."""
        up, down = (self.hub_rate, self.hub_rate) if node < 0 else self.rates(node)
        share, until = self.shares(node, now)
        return up * share, down * share, until


@dataclass(slots=True)
class _Begun:
    """A job, and what came of it; None: that is not known yet."""

    job: Job
    found: tuple[Offer, Any] | None = None


@dataclass(slots=True)
class _Member:
    """A member: its machines, the model it has, its bytes, and how long it took to come."""

    aggregator: Aggregator
    worker: Worker
    model_source: ModelSource
    model: Any = None
    model_bytes: int = 0
    model_s: float = 0.0


class VirtualHub:
    """See above.

    Args:
      hub: its machine.
      conditions: of members and network.
      learn: what members compute. It is called when the first of these results is due, for all jobs that have
        begun: no result depends on when it is found, and many are found sooner together.
      apply: what a commit does to the model.
      answer: what the hub finds out when its rule asks.
      forget: a member has forgotten all.
      decode: what a payload stands for at an aggregator.
      heard: called with every event that the hub's machine is about to be given.

    Attributes:
      clock: its virtual time.
      links: of members and the hub.
      events: that have happened: ends of flows, of tasks and of times, messages that came.
      steps: commits, without their updates.
      delays: of each contribution that counted: versions between its base and its commit.
      abandoned: contributions of which nothing came, as there were too few for the rule.
      payload_bytes, model_bytes: that have begun to move up from members, and down from the hub.
      held_bytes: of models that members hand to others.
      hub_bytes: of payloads and sums, that have begun to move to the hub.
      sums: that were sent to the hub.
      control_bytes: of all messages, besides payloads, sums and models.
    """

    def __init__(  # noqa: PLR0913 - what a driver does for the machine, by name
        self,
        hub: Hub,
        conditions: Conditions,
        learn: Learn,
        apply: Apply,
        answer: Callable[[Question], Any] = of_range,
        forget: Callable[[int], None] = lambda member: None,
        decode: Callable[[int, Payload], Any] = lambda member, payload: payload.value,
        heard: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.hub, self.clock = hub, Clock()
        self.steps: list[tuple[tuple[int, int], ...]] = []
        self.delays: list[int] = []
        self.abandoned: list[tuple[int, int]] = []
        self.payload_bytes = self.model_bytes = self.held_bytes = self.hub_bytes = self.control_bytes = 0
        self.sums = self.events = 0
        self._conditions, self._learn, self._apply, self._answer = conditions, learn, apply, answer
        self._forget, self._decode, self._heard = forget, decode, heard
        self._model, self._model_bytes = apply(None)
        self.node, self.alive = HUB, True
        self._version_of: dict[tuple[int, int], int] = {}  # of each task
        self._offers: dict[tuple[int, int], Offer] = {}
        self._numbytes: dict[tuple[int, int], int] = {}  # of what was computed for it
        self._begun: list[_Begun] = []  # jobs of which nothing is known yet
        self._members = [
            _Member(Aggregator(decode), self._worker(), ModelSource()) for _ in range(conditions.members)
        ]
        nodes = range(STANDBY, conditions.members)
        self.links = VirtualLinks(self.clock, nodes, conditions.rates_at, conditions.latency_s)
        self.links.link(self.node)
        for number in range(conditions.members):
            self._give(Joined(number, number, self.now))
        for number in range(conditions.members):
            self._link(number)

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        return self.clock.now

    def until(self, updates: float = math.inf, seconds: float = math.inf) -> None:
        """Goes on to that many commits, or that time, or until nothing will happen any more."""
        while len(self.steps) < updates:
            end, _ = self.links.network.next_end()
            event = self.clock.next_s()
            lease = max(self.now, self.hub.deadline()) if self.alive else math.inf
            now = min(end, event, lease)
            if now > seconds or now == math.inf:
                return
            self.events += 1
            if end == now:
                self.links.run_next()
            elif event == now:
                self.clock.run_next()
            else:
                self.clock.pass_to(now)
                self._give(Passed(now))
            self._act()

    # Links

    def _link(self, number: int) -> None:
        conditions = self._conditions
        life = self.links.link(number)
        self._greet(number)
        if conditions.cuts:
            drawn = 1 - uniform(conditions.seed, 1, number, life)
            self.clock.after(-math.log(drawn) / conditions.cuts, lambda: self._cut(number, life))

    def _greet(self, number: int) -> None:
        """A member's link is there."""
        self._members[number].worker.linked()
        self._drive(number)

    def _worker(self) -> Worker:
        return Worker()

    def _cut(self, number: int, life: int) -> None:
        """What is on the link is lost, and the hub learns of it."""
        member, conditions = self._members[number], self._conditions
        self.links.cut(number)
        for other, one in enumerate(self._members):
            if one.worker.task is not None and one.worker.task.via == number:
                one.worker.lost()
                self._drive(other)
        member.aggregator.unlinked()
        if uniform(conditions.seed, 2, number, life) < conditions.crashes:
            member.worker, member.aggregator = self._worker(), Aggregator(self._decode)
            member.model_source = ModelSource()
            self._learn_begun()
            self._forget(number)
        if self.alive:
            self._give(Left(number, self.now))
        self.clock.after(conditions.away_s, lambda: self._link(number))

    # A member

    def _drive(self, number: int) -> None:
        """Does what the machines of a member want."""
        member = self._members[number]
        while (action := member.worker.poll()) is not None:
            if isinstance(action, Compute):
                self._compute(number, member.worker, action)
            elif isinstance(action, ModelRequest):
                self._fetch(number, action)
            elif isinstance(action, Payload):
                self._send_payload(number, action)
            else:
                self._send(number, action)
        while (found := member.aggregator.poll()) is not None:
            self._send_sum(number, found)
        while (given := member.model_source.poll()) is not None:
            self._hand_over(number, given)

    def _send(self, number: int, message: FromWorker, numbytes: int | None = None) -> None:
        """To the hub; with content if there are `numbytes`."""

        def arrive() -> None:
            self._give(Came(number, message, self.now))
            if isinstance(message, Payload | Sum):
                self._arrived(number, message)

        self.control_bytes += control_bytes(message)
        if numbytes is None:
            self.links.tell(number, self.node, arrive)
        else:
            self.hub_bytes += numbytes
            self.links.send(number, self.node, numbytes, arrive)

    def _fetch(self, number: int, message: ModelRequest) -> None:
        """The model of a task, from a member that has it."""

        def asked() -> None:
            self._members[message.via].model_source.asked(number, message.version)
            self._drive(message.via)

        self.control_bytes += control_bytes(message)
        if message.via in self.links.linked:
            self.links.tell(number, message.via, asked)
        else:
            self._members[number].worker.lost()

    def _hand_over(self, number: int, found: HandOver) -> None:
        worker = self._members[found.member].worker

        def arrive() -> None:
            member = self._members[found.member]
            if member.worker is worker and worker.task is not None and worker.task.version == found.version:
                if not found.there:
                    worker.lost()
                else:
                    member.model, member.model_bytes = found.model, 0
                    worker.fetched()
                self._drive(found.member)

        if not found.there:
            self.links.tell(number, found.member, arrive)
        else:
            self.held_bytes += self._model_bytes
            self.links.send(number, found.member, self._model_bytes, arrive)

    def _send_payload(self, number: int, message: Payload) -> None:
        numbytes, via = self._numbytes[number, message.number], message.via
        self.payload_bytes += numbytes
        if via is None:
            self._send(number, message, numbytes)
            return

        def arrive() -> None:
            self._members[via].aggregator.arrived(number, message, self.now)
            self._drive(via)

        self.control_bytes += control_bytes(message)
        self.links.send(number, via, numbytes, arrive)

    def _send_sum(self, number: int, message: Sum) -> None:
        given = self.hub.aggregation
        numbytes = given.sum_bytes if given is not None else 0
        parts = [self._numbytes[task] for task in (*message.tasks, *message.left_out)]
        self.sums += 1
        self._send(number, message, numbytes or max(parts))

    def _compute(self, number: int, worker: Worker, action: Compute) -> None:
        member = self._members[number]
        key, came = (number, action.task.number), (member.model_bytes, member.model_s)
        begun = _Begun(Job(number, action, member.model))
        self._begun.append(begun)

        def ready() -> None:
            if begun.found is None:
                self._learn_begun()
            assert begun.found is not None  # it was one of these
            offer, value = begun.found
            if worker.task is None or worker.task.number != action.task.number:
                return  # that is over
            offer = replace(offer, model_bytes=came[0], model_s=came[1])
            self._numbytes[key], self._offers[key] = offer.numbytes, offer
            worker.computed(offer, value)
            if self._members[number].worker is worker:
                self._drive(number)

        self.clock.after(self._conditions.compute_s(*key), ready)

    def _learn_begun(self) -> None:
        """In the order in which they began. A member whose lease has ended may have begun again: it computes
        one after the other."""
        while self._begun:
            now: dict[int, _Begun] = {}
            for one in self._begun:
                if now.setdefault(one.job.member, one) is not one:
                    break
            self._begun = self._begun[len(now) :]
            found = self._learn([one.job for one in now.values()])
            for one, offered in zip(now.values(), found, strict=True):
                one.found = offered

    # The hub

    def _give(self, event: Event) -> None:
        self._heard(event)
        give(self.hub, event)

    def _act(self) -> None:
        """Does what the hub wants."""
        while self.alive and (action := self.hub.poll()) is not None:
            self._do(action)

    def _arrived(self, number: int, message: Payload | Sum) -> None:
        """It has come to the hub."""

    def _committed(self, step: Step) -> None:
        """The step was taken."""

    def _do(self, action: Action) -> None:
        if isinstance(action, Tell):
            self._tell(action.member, action.message)
        elif isinstance(action, Ask):
            found = self._answer(action.question)
            self.clock.after(self._conditions.answer_s, lambda: self._give(Answered(found, self.now)))
        elif isinstance(action, Step):
            self.steps.append(action.contributions)
            self.delays += [
                max(0, action.version - 1 - self._version_of[key]) for key in action.contributions
            ]
            self._model, self._model_bytes = self._apply(action)
            self._committed(action)
        elif isinstance(action, Abandon):
            self.abandoned += action.contributions

    def _tell(self, number: int, message: FromHub) -> None:
        member, model, sent = self._members[number], self._model, self.now
        numbytes = self._model_bytes

        def arrive() -> None:
            if isinstance(message, Gather | CancelGroup):
                self._gather(number, message)
                return
            if isinstance(message, Task) and message.via is None:
                member.model_source.holds(message.version, model)
                member.model, member.model_bytes = model, numbytes
                member.model_s = self.now - sent - self._conditions.latency_s
            member.worker.handle(message)
            self._drive(number)

        self.control_bytes += control_bytes(message)
        if isinstance(message, Task):
            self._version_of[number, message.number] = message.version
        if isinstance(message, Task) and message.via is None:
            self.model_bytes += numbytes
            self.links.send(self.node, number, numbytes, arrive)
        else:
            self.links.tell(self.node, number, arrive)

    def _gather(self, number: int, message: Gather | CancelGroup) -> None:
        aggregator = self._members[number].aggregator
        aggregator.handle(message, self.now)

        def passed() -> None:
            aggregator.passed(self.now)
            self._drive(number)

        if isinstance(message, Gather):
            self.clock.after(message.within_s, passed)
