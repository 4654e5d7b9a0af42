"""Histories of a hub with hostile members, made by seed.

    python -m tests.hub.histories                   10,000 of them; prints the seeds that fail
    python -m tests.hub.histories --first 77 --count 1

The hub's machine and its honest workers' are those that run live. Between them are links: messages on one
keep their order, may come twice, and are lost with it; links go in any order. Members crash and forget, leave
and come back; the hub is started again from a checkpoint; leases end; a rule's question is answered late.
Hostile members send any message with any numbers at any time, also sums that they were asked for. Then the
faults end, though hostile members may go on, and everybody who is honest must get on with it.

Each honest value is another number, so that what was counted is known by itself, whatever the hub says.
"""

from __future__ import annotations

import argparse
import math
import sys
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from tweed.aggregate import (
    All,
    Cache,
    CommitRule,
    Each,
    FLTrust,
    InnerProducts,
    Krum,
    Mean,
    Median,
    NearestNeighbourMixing,
    Question,
    Quorum,
    Round,
    Weighted,
)
from tweed.hub.machine import Grant, Hub, Leave, Offer, Outcome, Payload, Ready, Step, Worker
from tweed.hub.machine.actions import Abandon, Ask, Distrust
from tweed.hub.machine.aggregator import Aggregator
from tweed.hub.machine.grouping import Group
from tweed.hub.machine.member import Phase
from tweed.hub.machine.open_groups import Aggregation
from tweed.hub.machine.worker import Compute
from tweed.hub.wire.messages import Blocked, CancelGroup, FromHub, FromWorker, Gather, OutcomeReason, Sum
from tweed.order import BoundedDelay, FirstIn, NewestFirst, Order, ShortestFirst
from tweed.rng import uniform

T = TypeVar("T")
RULES: list[Any] = [Mean(), Mean(), Krum(0.2), Weighted(), FLTrust(), NearestNeighbourMixing(Median(), 0.2)]
WHENS: list[CommitRule] = [Each(), Cache(3), Quorum(3), Quorum(4, within_s=2.0), All(), Round(3)]
ORDERS: list[Order[Any]] = [
    FirstIn(), FirstIn(3), NewestFirst(2), ShortestFirst(2), BoundedDelay(4), BoundedDelay(9, at_once=2),
]  # fmt: skip
#: What hostile members put in the place of a number.
NUMBERS: list[Any] = [0, 1, 2, 3, 7, -1, -(2**63), 2**31, 2**53, 2**63, 10**30]
MEASURES = [0.0, 1.0, -1.0, 1e-300, 1e308, math.inf, -math.inf, math.nan]
VALUES = [
    torch.full((3,), math.nan), torch.full((3,), math.inf), torch.full((3,), -1e38), torch.zeros(3),
    torch.zeros(2), torch.zeros(0),
]  # fmt: skip
TASK_S, PAYLOAD_S = 6.0, 3.0
#: Of half a second each, at most, in which everybody must get on. Hostile members that hold the only two
#: tasks, and lose what goes via them, make others wait for a lease each time: that took up to 364 seconds.
ROUNDS = 1200


class Seeded:
    """Draws by a seed."""

    def __init__(self, seed: int) -> None:
        self._seed, self._count = seed, 0

    def uniform(self) -> float:
        self._count += 1
        return uniform(self._seed, self._count)

    def pick(self, some: Sequence[T]) -> T:
        return some[int(self.uniform() * len(some))]


@dataclass(slots=True)
class AnyPlan(Aggregation):
    """Any plan must do no harm, as rates are what members say."""

    draws: Seeded = field(default_factory=lambda: Seeded(0))

    def plan(self, pending: Sequence[tuple[int, int]], idle: Iterable[int], now: float) -> tuple[Group, ...]:
        busy, groups = {group.aggregator for group in self.groups.values()}, []
        free = [one for one in idle if one not in busy][: self.most - len(busy)]
        begin = 0
        while begin < len(pending):
            end = min(len(pending), begin + self.draws.pick([1, 2, 5]))
            groups.append(Group(free.pop() if free and self.draws.uniform() < 0.7 else None, begin, end))
            begin = end
        self.free_s = now + self.draws.pick([0.0, 0.1, 1.0])
        return tuple(groups)


@dataclass
class Honest:
    """A member that keeps to the rules, and its link."""

    worker: Worker = field(default_factory=Worker)
    aggregator: Aggregator = field(default_factory=Aggregator)
    linked: bool = False
    up: deque[FromWorker] = field(default_factory=deque)
    down: deque[FromHub] = field(default_factory=deque)
    computing: list[tuple[Worker, Offer, Tensor]] = field(default_factory=list)


@dataclass
class Books:
    """What has happened in the present life of the hub, and what is kept for all of them."""

    steps: list[tuple[tuple[int, int], ...]] = field(default_factory=list)
    granted: set[tuple[int, int]] = field(default_factory=set)
    counted: dict[tuple[int, int], Tensor | None] = field(default_factory=dict)  # None: in a sum
    ever: Counter[float] = field(default_factory=Counter)  # honest values that were counted


class History:
    """One history; `run` raises AssertionError where the hub does what it must not."""

    def __init__(self, seed: int) -> None:
        self.draws, self.now, self.books = Seeded(seed), 0.0, Books()
        pick = self.draws.pick
        self.settings: dict[str, Any] = {
            "aggregate": pick(RULES), "when": pick(WHENS), "order": pick(ORDERS),
            "tasks": pick([None, None, 2, 4]), "task_s": TASK_S, "payload_s": PAYLOAD_S,
            "patience": pick([1, 3]),
        }  # fmt: skip
        self.aggregators = pick([1, 3]) if self.draws.uniform() < 0.3 else 0
        if self.aggregators:  # for rules that need no single contribution, and many transfers at once
            self.settings |= {"aggregate": Mean(), "order": pick([FirstIn(9), BoundedDelay(20, at_once=9)])}
        self.honest = {member: Honest() for member in range(pick([1, 3, 5, 6]))}
        self.hostile = [100 + number for number in range(pick([0, 1, 2, 3]))]
        self.computed = 0
        self.asked: dict[int, Gather] = {}  # hostile members, for sums
        self.question: Question | None = None
        self.hub = self.started()
        self.checkpoint = self.hub.state()

    # The hub

    def started(self) -> Hub:
        """A hub, for which all honest members are expected."""
        aggregation = AnyPlan(self.aggregators, draws=self.draws) if self.aggregators else None
        hub = Hub(**self.settings, value=self.value, total=self.total, aggregation=aggregation)
        for member in self.honest:
            hub.expect(member)
        return hub

    def value(self, member: int, payload: Payload) -> Tensor:
        """As drivers do: what is no contribution is not a number."""
        self.count((member, payload.number), payload.value)
        if member in self.honest:
            self.books.ever[float(payload.value[0])] += 1
        return payload.value if payload.value.shape == (3,) else VALUES[0]

    def total(self, message: Sum) -> Tensor:
        """The same of a sum."""
        for key in (*message.tasks, *message.left_out):
            self.count(key, None)
        return message.value if message.value.shape == (3,) else VALUES[0]

    def count(self, key: tuple[int, int], value: Tensor | None) -> None:
        assert key in self.books.granted, f"{key} was counted without a grant"
        assert key not in self.books.counted, f"{key} was counted twice"
        self.books.counted[key] = value

    def restart(self) -> None:
        """The hub goes on from its checkpoint; what was committed since is lost."""
        for member in self.honest:
            self.cut(member, noticed=False)
        self.hub = self.started()
        self.hub.load(self.checkpoint)
        self.question, version = None, self.hub.version
        self.books.steps = self.books.steps[:version]
        self.books.granted, self.books.counted = set(), {}

    def act(self) -> None:
        """Does what the hub wants, and looks at it."""
        while (action := self.hub.poll()) is not None:
            if isinstance(action, Ask):
                assert self.question is None
                self.question = action.question
            elif isinstance(action, Step):
                self.look_at(action)
                self.books.steps.append(action.contributions)
            elif isinstance(action, Distrust):
                assert action.member not in self.honest, "an honest one is not trusted any more"
            elif isinstance(action, Abandon):
                assert set(action.contributions) <= set(self.books.counted)
            else:
                self.tell(action.member, action.message)
        phases = Counter(one.phase for one in self.hub.members.values())
        assert phases[Phase.GRANTED] <= self.hub.order.at_once  # type: ignore[attr-defined]
        under_way = phases[Phase.OPEN] + phases[Phase.OFFERED] + phases[Phase.GRANTED]
        assert under_way <= (self.hub.tasks or math.inf)

    def look_at(self, step: Step) -> None:
        keys, books = step.contributions, self.books
        assert step.version == len(books.steps) + 1, "a version is skipped"
        assert len({member for member, _ in keys}) == len(keys), "a member is twice in an update"
        assert not set(keys) & {key for other in books.steps for key in other}, "a task counts twice"
        assert set(keys) <= set(books.counted)
        update = torch.as_tensor(step.update)
        assert bool(update.isfinite().all()), "what is not finite is in an update"
        values = [value for key in keys if (value := books.counted[key]) is not None]
        fine = [value for value in values if value.shape == (3,) and bool(value.isfinite().all())]
        alone = isinstance(self.hub.aggregate, Mean) and len(values) == len(keys)
        if alone and 2 * len(fine) > len(values):
            torch.testing.assert_close(update, torch.stack(fine).mean(0))

    def tell(self, member: int, message: FromHub) -> None:
        if isinstance(message, Grant):
            self.books.granted.add((member, message.number))
        if isinstance(message, Outcome) and message.why is OutcomeReason.COUNTED:
            assert (member, message.number) in self.books.counted, "it is told to count, and does not"
        if member in self.honest and self.honest[member].linked:
            self.honest[member].down.append(message)
        elif isinstance(message, Gather):
            self.asked[member] = message

    def answer(self) -> None:
        question, self.question = self.question, None
        if question is not None:
            known = isinstance(question, InnerProducts)
            self.hub.answered(question.of_range() if known else torch.ones(3), self.now)
            self.act()

    # Honest members

    def drive(self, member: int) -> None:
        one = self.honest[member]
        while (action := one.worker.poll()) is not None:
            if isinstance(action, Compute):
                self.computed += 1
                value = torch.tensor([self.computed, -1.0, 1.0])
                numbytes, norm = int(self.draws.uniform() * 9), float(value.norm())
                offer = Offer(action.task.number, numbytes, norm, model_bytes=5, model_s=0.1)
                one.computing.append((one.worker, offer, value))
            elif one.linked and isinstance(action, Payload) and action.via is not None:
                if action.via in self.honest:  # what goes to another one is there at once, or kept
                    self.honest[action.via].aggregator.arrived(member, action, self.now)
                    self.add_up(action.via)
            elif one.linked:
                one.up.append(action)

    def add_up(self, member: int) -> None:
        one = self.honest[member]
        one.aggregator.passed(self.now)
        while (found := one.aggregator.poll()) is not None:
            one.up.append(found)

    def link(self, member: int) -> None:
        one = self.honest[member]
        if not one.linked:
            one.linked = True
            one.worker.linked()
            self.drive(member)

    def cut(self, member: int, noticed: bool, forgets: bool = False) -> None:
        """What is on the link is lost. The hub notices, or the next link takes its place."""
        one = self.honest[member]
        if forgets:
            one.worker, one.aggregator, one.computing = Worker(), Aggregator(), []
        if one.linked:
            one.linked = False
            one.up.clear(), one.down.clear()
            one.aggregator.unlinked()
            if noticed:
                self.hub.left(member, self.now)

    def send_up(self, member: int, twice: bool = False) -> None:
        one = self.honest[member]
        if one.up:
            message = one.up[0] if twice else one.up.popleft()
            self.hub.handle(member, message, self.now)
            if isinstance(message, Leave):
                self.cut(member, noticed=False)

    def send_down(self, member: int, twice: bool = False) -> None:
        one = self.honest[member]
        if one.down:
            message = one.down[0] if twice else one.down.popleft()
            if isinstance(message, Gather | CancelGroup):
                one.aggregator.handle(message, self.now)
            else:
                one.worker.handle(message)
            self.drive(member)
            self.add_up(member)

    def finish(self, member: int) -> None:
        one = self.honest[member]
        if one.computing:
            worker, offer, value = one.computing.pop(int(self.draws.uniform() * len(one.computing)))
            worker.computed(offer, value)
            self.drive(member)

    # Hostile members

    def forge(self) -> None:
        """Any message, often with the number that would be right."""
        pick, member = self.draws.pick, self.draws.pick(self.hostile)
        own = self.hub.members[member].number if member in self.hub.members else 0
        number = pick([own, own, own, own - 1, own + 1, *NUMBERS])
        offer = Offer(
            number, pick([1, 8, 8, *NUMBERS]), pick(MEASURES), pick([1.0, 1.0, *MEASURES]),
            pick([8, *NUMBERS]), pick(MEASURES),
        )  # fmt: skip
        payload = Payload(number, pick(VALUES), pick([None, None, *self.honest]))
        if member in self.asked and self.draws.uniform() < 0.5:
            self.hub.handle(member, self.forged_sum(self.asked[member]), self.now)
            self.act()
        message = pick(
            [Ready(number), Ready(number), offer, offer, payload, payload, Blocked(number), Leave()]
        )
        self.hub.handle(member, message, self.now)

    def forged_sum(self, gather: Gather) -> Sum:
        pick, tasks = self.draws.pick, gather.tasks
        named = pick([tasks, tasks, tasks[:1], tasks + tasks, ((0, 1),), ()])
        left_out = pick([(), tasks[1:], tasks])
        took_s = tuple(pick([0.1, *MEASURES]) for _ in range(pick([0, len(named), len(named), 9])))
        return Sum(pick([gather.group, gather.group, *NUMBERS]), named, pick(VALUES), left_out, took_s)

    def hold_up(self) -> None:
        """Takes tasks and grants, and lets others wait for them as long as possible."""
        for member in self.hostile:
            one = self.hub.members.get(member)
            number = 0 if one is None else one.number
            moves = [Ready(number), Offer(number, 0), Payload(number, VALUES[0]), Offer(number, -1), None]
            message = Ready(number) if one is None or one.phase is Phase.DONE else self.draws.pick(moves)
            if message is not None:
                self.hub.handle(member, message, self.now)
                self.act()

    # Both parts of a history

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.hub.passed(self.now)
        for member in self.honest:
            self.add_up(member)

    def fault(self, member: int) -> None:
        kind = int(self.draws.uniform() * 8)
        if kind == 0:
            self.checkpoint = self.hub.state()
        elif kind == 1 and self.draws.uniform() < 0.3:
            self.restart()
        elif kind == 2 and self.honest[member].linked:
            self.honest[member].up.append(Leave())
        elif kind == 3:
            self.send_up(member, twice=True)
        elif kind == 4:
            self.send_down(member, twice=True)
        else:
            self.cut(member, self.draws.uniform() < 0.7, forgets=kind == 5)

    def disturbed(self, moments: int) -> None:
        moves: list[Callable[[int], None]] = [
            self.send_up, self.send_up, self.send_down, self.send_down, self.finish, self.link, self.fault,
        ]  # fmt: skip
        for _ in range(moments):
            drawn = self.draws.uniform()
            self.now += 0.01
            if drawn < 0.1:
                self.pass_time(self.draws.pick([0.1, 0.1, 1.0, TASK_S]))
            elif drawn < 0.15:
                self.answer()
            elif drawn < 0.3 and self.hostile:
                self.forge()
            else:
                self.draws.pick(moves)(self.draws.pick(list(self.honest)))
            self.act()

    def undisturbed(self, goes_on: Callable[[], None]) -> None:
        """One message of each at a time, until everybody got on with it."""
        everybody = not isinstance(self.settings["order"], NewestFirst | ShortestFirst)
        before = Counter(member for member, _ in self.books.counted)
        for _ in range(ROUNDS):
            for member in self.honest:
                for move in (self.link, self.finish, self.send_up, self.send_down):
                    move(member)
                    self.act()
            self.answer()
            goes_on()
            self.pass_time(0.5)
            self.act()
            more = Counter(member for member, _ in self.books.counted)
            found = [more[member] - before[member] for member in self.honest]
            if min(found) >= 2 if everybody else sum(found) >= 4 * len(found):
                return
        raise AssertionError(f"it hangs: {found} contributions of members in {self.now:.0f} s")

    def run(self) -> None:
        self.disturbed(40 + int(400 * self.draws.uniform()))
        hostile: list[Callable[[], None]] = [self.forge, self.hold_up] if self.hostile else []
        self.undisturbed(self.draws.pick([lambda: None, *hostile]))
        assert max(self.books.ever.values(), default=1) == 1, "an honest contribution counts twice"


def failures(first: int, count: int) -> dict[int, BaseException]:
    """What went wrong, by seed."""
    found: dict[int, BaseException] = {}
    for seed in range(first, first + count):
        try:
            History(seed).run()
        except Exception as error:  # noqa: BLE001 the others are looked at too
            found[seed] = error
    return found


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=10_000)
    given = parser.parse_args()
    found = failures(given.first, given.count)
    for seed, error in found.items():
        print(f"seed {seed}: {History(seed).settings}", file=sys.stderr)
        traceback.print_exception(error)
    print(f"{given.count} histories, {len(found)} failed: {list(found)}")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
