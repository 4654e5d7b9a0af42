"""A hub and its members on a virtual clock and a virtual network, with faults: the machines that run live.

    run = VirtualHub(Hub(when=Cache(10)), conditions, learn, apply)
    run.until(updates=1000)
    run.now, run.delays

Messages without a payload take a latency; payloads and models share the hub's link, in each direction. A link
that breaks loses what is on it. Nothing sleeps, and the same arguments give the same run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from tweed.aggregate import Question, of_range
from tweed.exchange.hub import Hub, Offer, Payload, Step, Task, Worker
from tweed.exchange.hub.hub import Action, Ask, Tell
from tweed.exchange.hub.messages import FromWorker
from tweed.exchange.hub.worker import Compute
from tweed.rng import uniform
from tweed.simulate.clock import Clock
from tweed.simulate.network import FluidNetwork

#: The hub as a node of the network; members have numbers from 0 on.
HUB = -1
#: Of a member, what it is to compute, and the model that came with it: what it offers, and the value.
Learn = Callable[[int, Compute, Any], tuple[Offer, Any]]
#: Commits: lets the optimizer step, and returns the model as workers get it, and its bytes; None: before the
#: first step.
Apply = Callable[[Step | None], tuple[Any, int]]


@dataclass(frozen=True, slots=True)
class Conditions:
    """What members and network are like. Rates are in bytes per second, times in seconds.

    Args:
      members: how many.
      compute_s: for a member and its task, how long it computes.
      hub_rate: of the hub's link, in each direction.
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


@dataclass(slots=True)
class _Member:
    """A member: its machine, and the life of its link. What was sent over an earlier one never arrives."""

    worker: Worker = field(default_factory=Worker)
    life: int = 0
    linked: bool = False
    model: Any = None
    moving: dict[Hashable, Callable[[], None]] = field(default_factory=dict)  # flows, and what follows each


class VirtualHub:
    """See above.

    Args:
      hub: its machine.
      conditions: of members and network.
      learn: what a member computes.
      apply: what a commit does to the model.
      answer: what the hub finds out when its rule asks.
      forget: a member has forgotten all.

    Attributes:
      clock: its virtual time.
      network: of members and the hub.
      events: that have happened: ends of flows, of tasks and of times, messages that came.
      steps: commits, without their updates.
      delays: of each contribution that counted: versions between its base and its commit.
      abandoned: contributions of which nothing came, as there were too few for the rule.
      payload_bytes, model_bytes: that have begun to move up and down.
    """

    def __init__(
        self,
        hub: Hub,
        conditions: Conditions,
        learn: Learn,
        apply: Apply,
        answer: Callable[[Question], Any] = of_range,
        forget: Callable[[int], None] = lambda member: None,
    ) -> None:
        self.hub, self.clock, self.network = hub, Clock(), FluidNetwork()
        self.steps: list[tuple[tuple[int, int], ...]] = []
        self.delays: list[int] = []
        self.abandoned: list[tuple[int, int]] = []
        self.payload_bytes = self.model_bytes = self.events = 0
        self._conditions, self._learn, self._apply, self._answer = conditions, learn, apply, answer
        self._forget = forget
        self._model, self._model_bytes = apply(None)
        self._bases: dict[tuple[int, int], int] = {}  # version of each task
        self._members = [_Member() for _ in range(conditions.members)]
        self._flows: dict[Hashable, int] = {}  # the member that each is of
        self._count = 0
        for node in range(HUB, conditions.members):
            self._set_rates(node)
        for number in range(conditions.members):
            hub.expect(number)
        for number in range(conditions.members):
            self._link(number)

    def until(self, updates: float = math.inf, seconds: float = math.inf) -> None:
        """Goes on to that many commits, or that time, or until nothing will happen any more."""
        while len(self.steps) < updates:
            end, key = self.network.next_end()
            event, lease = self.clock.next_s(), max(self.now, self.hub.deadline())
            now = min(end, event, lease)
            if now > seconds or now == math.inf:
                return
            self.events += 1
            if end == now:
                self.clock.pass_to(now)
                self.network.stop(key, now)
                self._members[self._flows.pop(key)].moving.pop(key)()
            elif event == now:
                self.clock.run_next()
            else:
                self.clock.pass_to(now)
                self.hub.passed(now)
            self._act()

    @property
    def now(self) -> float:
        """Seconds."""
        return self.clock.now

    # Links

    def _set_rates(self, node: int) -> None:
        """What a node has now, until it changes."""
        rate = self._conditions.hub_rate
        up, down = (rate, rate) if node == HUB else self._conditions.rates(node)
        share, until = self._conditions.shares(node, self.now)
        self.network.set_rates(node, up * share, down * share, self.now)
        self.clock.after(until - self.now, lambda: self._set_rates(node))

    def _link(self, number: int) -> None:
        member = self._members[number]
        member.linked = True
        member.life += 1
        member.worker.linked()
        self._drive(number)
        if self._conditions.cuts:
            drawn = 1 - uniform(self._conditions.seed, 1, number, member.life)
            self.clock.after(-math.log(drawn) / self._conditions.cuts, lambda: self._cut(number))

    def _cut(self, number: int) -> None:
        """What is on the link is lost, and the hub learns of it."""
        member, conditions = self._members[number], self._conditions
        member.linked = False
        for key in member.moving:
            self.network.stop(key, self.now)
            del self._flows[key]
        member.moving.clear()
        if uniform(conditions.seed, 2, number, member.life) < conditions.crashes:
            member.worker = Worker()
            self._forget(number)
        self.hub.left(number, self.now)
        self.clock.after(conditions.away_s, lambda: self._link(number))

    def _over(self, number: int, do: Callable[[], None]) -> Callable[[], None]:
        """`do`, unless the link that `number` has now breaks before."""
        life = self._members[number].life

        def arrive() -> None:
            if self._members[number].linked and self._members[number].life == life:
                do()

        return arrive

    def _move(self, src: int, dst: int, numbytes: int, do: Callable[[], None]) -> None:
        """Lets so many bytes flow between a member and the hub, then `do`, after a latency."""
        number = max(src, dst)
        arrive = self._over(number, do)
        self._count += 1
        self._flows[self._count] = number
        self._members[number].moving[self._count] = lambda: self.clock.after(
            self._conditions.latency_s, arrive
        )
        self.network.start(self._count, src, dst, numbytes, self.now)

    # Both sides

    def _drive(self, number: int) -> None:
        """Does what the machine of a member wants."""
        worker = self._members[number].worker
        while (action := worker.poll()) is not None:
            if isinstance(action, Compute):
                self._compute(number, worker, action)
            elif self._members[number].linked:
                self._send(number, action)

    def _send(self, number: int, message: FromWorker) -> None:
        def arrive() -> None:
            self.hub.handle(number, message, self.now)

        if isinstance(message, Payload):
            offer = self.hub.members[number].offer
            numbytes = 0 if offer is None else offer.numbytes
            self.payload_bytes += numbytes
            self._move(number, HUB, numbytes, arrive)
        else:
            self.clock.after(self._conditions.latency_s, self._over(number, arrive))

    def _compute(self, number: int, worker: Worker, action: Compute) -> None:
        offer, value = self._learn(number, action, self._members[number].model)
        seconds = self._conditions.compute_s(number, action.task.number)

        def ready() -> None:
            worker.computed(offer, value)
            if self._members[number].worker is worker:
                self._drive(number)

        self.clock.after(seconds, ready)

    def _act(self) -> None:
        """Does what the hub wants."""
        while (action := self.hub.poll()) is not None:
            self._do(action)

    def _do(self, action: Action) -> None:
        if isinstance(action, Tell):
            self._tell(action)
        elif isinstance(action, Ask):
            found = self._answer(action.question)
            self.clock.after(self._conditions.answer_s, lambda: self.hub.answered(found, self.now))
        elif isinstance(action, Step):
            self.steps.append(action.contributions)
            self.delays += [action.version - 1 - self._bases.pop(key) for key in action.contributions]
            self._model, self._model_bytes = self._apply(action)
        else:
            self.abandoned += action.contributions

    def _tell(self, action: Tell) -> None:
        number, message, model = action.member, action.message, self._model
        member = self._members[number]

        def arrive() -> None:
            if isinstance(message, Task):
                member.model = model
            member.worker.handle(message)
            self._drive(number)

        if isinstance(message, Task):
            self._bases[number, message.number] = message.version
            self.model_bytes += self._model_bytes
            self._move(HUB, number, self._model_bytes, arrive)
        else:
            self.clock.after(self._conditions.latency_s, self._over(number, arrive))
