"""The hub's side: who gets a task, who may send, what is committed.

    phase       moved by                                    to
    DONE        Ready, or the outcome of the last task,
                and there is a task to hand out             OPEN
    OPEN        Offer                                       OFFERED
                Offer, and one of its is in the next update HELD
                its lease ends                              DONE, expired
    HELD        the batch has ended, and there is room      OFFERED
    OFFERED     the order grants it                         GRANTED
                the order drops it                          DONE, late
    GRANTED     Payload                                     DONE, counted
                Payload, while a question is open           ARRIVED
                its lease ends                              DONE, expired
    ARRIVED     the batch has ended                         DONE, counted
    GRANTED     a Sum that it is in                         DONE, counted
                nothing comes of its group: who is to add
                it up is gone, cannot be reached, or has
                not sent a sum when a lease of it ends      GRANTED, to send directly
    any         Leave; Ready of one that has forgotten it   DONE, expired
    OPEN        an Offer that cannot be                     DONE, absurd
    not GRANTED Payload                                     DONE, not granted

A member has one task at a time. Tasks of a member have ascending numbers; the hub keeps how the last one
ended, also of a member that is gone. So a message may come twice, or its answer get lost with the link: it is
answered again, and moves nothing twice. A member that has lost its memory asks with the last number it knows,
and gets another task; what it was about before has ended.

Only what was granted moves. The order lets so many transfers be under way at once, whatever members do; a
lease takes back what does not come. What the order drops has not moved, and its worker is told why. Who is
dropped `patience` times in a row has its next contribution reserved.

A contribution that has arrived is counted: it goes into the aggregate, and with that into the next update,
when `when` says. What arrives while a rule asks waits until the driver has taken the step, and is then
counted one by one: what it stands for (`value`) may depend on the newest model. A member has at most one
contribution in an update; its next one waits for the commit. Where a rule needs more than there are, and
nobody is left who could add one, they come to nothing.

Updates that wait for members wait for none longer than a lease, also for who has only come and says nothing:
who begins anew gets no more time, and who let it pass is not waited for until it contributes again.

With aggregators (`gathering`), members that get a task at the same time may be told to fetch the model from
one of them. And all that the order lets go at once is planned together: some send to the hub, others to a
member that adds them up. While the hub's link is not free, what is offered waits, so that there is something
to plan. A sum counts as its contributions do, all in one update. With `Each` that is their sum, as each would
have been an update: which way a contribution took decides nothing about the step.

What cannot happen: a contribution counts twice (its task is DONE then); more payloads arrive than were
granted and not taken back; a member that asks for a task waits though one could be handed out; a version is
skipped.

Nothing here has a clock or a socket. All that was handed to it, in that order, with the same `now`, gives the
same actions again, if `value` gives the same.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tweed.aggregate import Aggregate, Answer, Each, Mean, Question, When
from tweed.errors import UsageError
from tweed.exchange.checkpoint import filled, plain
from tweed.exchange.hub.actions import Abandon, Action, Ask, Step, Tell
from tweed.exchange.hub.gathering import Gathering, Open
from tweed.exchange.hub.member import Member, Phase
from tweed.exchange.hub.messages import (
    Blocked,
    Copy,
    Fetch,
    FromHub,
    FromWorker,
    Gather,
    Grant,
    Leave,
    Offer,
    Outcome,
    Payload,
    Ready,
    Resume,
    Sum,
    Task,
    Unit,
    Void,
    Why,
)
from tweed.exchange.hub.updates import update_of
from tweed.order import Committed, Ended, FirstIn, Offered, Order, Reserved, Send, Transfer, Withdrawn
from tweed.strategy import Strategy

_UNDER_WAY = frozenset({Phase.OPEN, Phase.OFFERED, Phase.GRANTED})
#: What a lease is on that is no phase: a member that has said nothing yet.
_EXPECTED = "expected"
#: So often a task goes over one link: each time with the model, though its member may not even read.
_TOLD = 3
#: Transfers at once where the strategy has no order, and nobody knows how many members will come.
_AT_ONCE = 16


class CopiesFirst(Protocol):
    """Says of which contributions the replica must have a copy before the hub: see `replica.Divergence`."""

    def granted(self, task: tuple[int, int], norm: float) -> bool:
        """Whether the copy of what is granted is to go first."""
        ...

    def has_room(self, norms: Sequence[float]) -> bool:
        """Whether all of these could be missing, too."""
        ...

    def held(self, tasks: Iterable[tuple[int, int]]) -> None:
        """The replica has these, or nothing will come of them."""
        ...


@dataclass(slots=True)
class Hub:
    """See above. All times are in seconds, and `now` never goes back.

    Args:
      aggregate: what contributions come to.
      when: they do.
      order: who may send.
      tasks: at most so many are under way at once, from the task to the payload; None: any number. Who may
        not offer before the next commit is not under way.
      task_s: after so long without an offer, a task is taken back.
      payload_s: after so long without the payload, a grant is.
      patience: drops in a row after which the next contribution is reserved.
      value: of a member and its payload, what that stands for; called when it is counted.
      missing: likewise, where it has no value; None: nowhere.
      total: the same of a sum.
      gathering: members may add up contributions of others on their way; None: all come directly.
      copies: says of which contributions the replica must have a copy before the hub; None: of none.

    Attributes:
      members: by their number.
      version: of the model.
    """

    aggregate: Aggregate[Any] = field(default_factory=Mean)
    when: When = field(default_factory=Each)
    order: Order[Any] = field(default_factory=FirstIn)
    tasks: int | None = None
    task_s: float = 600.0
    payload_s: float = 60.0
    patience: int = 3
    value: Callable[[int, Payload], Any] = lambda member, payload: payload.value
    missing: Callable[[int, Payload], Any] = lambda member, payload: None
    total: Callable[[Sum], Any] = lambda message: message.value
    gathering: Gathering | None = None
    copies: CopiesFirst | None = None
    members: dict[int, Member] = field(default_factory=dict)
    version: int = 0
    _out: deque[Action] = field(default_factory=deque)
    _idle: OrderedDict[int, None] = field(default_factory=OrderedDict)  # who waits for a task
    _under_way: int = 0  # tasks that somebody computes, offers or sends
    _busy: int = 0  # tasks that are not over
    _present: int = 0  # members of which something may come
    _after: dict[int, None] = field(default_factory=dict)  # who waits for the commit, to get a task
    _leases: list[tuple[float, int, int, str]] = field(default_factory=list)
    _held: dict[int, None] = field(default_factory=dict)  # whose offer waits for the commit
    _released: deque[int] = field(default_factory=deque)  # whose offer waits for room, after that
    _batch: list[tuple[int, int]] = field(default_factory=list)
    _units: list[Unit] = field(default_factory=list)  # as which they came
    _first_s: float = math.inf  # when the first of the batch arrived
    _early: deque[tuple[int, Payload]] = field(default_factory=deque)  # arrived while a question was open
    _now: float = 0.0
    _asking: bool = False
    _waits: bool = False  # the order is asked when the hub's link is free
    _orders: Any = None
    _gathered: Any = None
    _empty: Any = None  # what was gathered before the first of the batch

    def __post_init__(self) -> None:
        if self.tasks is not None and self.tasks < 1:
            raise UsageError(f"tasks={self.tasks}: at least one must be handed out, or nobody trains")
        if self.gathering is not None and self.aggregate.in_network is None:
            raise UsageError(f"{self.aggregate!r} must see each contribution alone: aggregators send sums")
        self._orders, self._gathered = self.order.start(), self.aggregate.start()

    @classmethod
    def of(
        cls,
        strategy: Strategy,
        members: int,
        value: Callable[[int, Payload], Any],
        missing: Callable[[int, Payload], Any] = lambda member, payload: None,
        total: Callable[[Sum], Any] = lambda message: message.value,
        sum_bytes: int = 0,
        able: set[int] | None = None,
    ) -> Hub:
        """That of a strategy with a hub, for so many members; `able` as of `Gathering`."""
        given = strategy.hub
        assert given is not None  # the caller looked
        return cls(
            strategy.aggregate,
            given.when or Each(),
            strategy.order or FirstIn(max(members, _AT_ONCE)),
            tasks=given.tasks,
            task_s=given.task_s,
            payload_s=given.payload_s,
            patience=given.patience,
            value=value,
            missing=missing,
            total=total,
            gathering=Gathering(given.aggregators, sum_bytes, able) if given.aggregators else None,
        )

    def expect(self, member: int, now: float = 0.0) -> None:
        """The link of `member` stands, or soon will: an update may have to wait for it, no longer than for a
        task."""
        one = self.members.setdefault(member, Member())
        self._move(one, expected=True)
        one.told = 0
        one.due_s = min(one.due_s, now + self.task_s)
        heapq.heappush(self._leases, (one.due_s, member, one.number, _EXPECTED))

    def may_aggregate(self, member: int, now: float) -> None:
        """`member` adds up what others send if it is asked, until its link ends; nothing comes of what it was
        asked for before."""
        if self.gathering is not None and self.gathering.able is not None:
            self._void_at(member, now)
            self.gathering.able.add(member)
            self._go_on(now)

    def handle(self, member: int, message: FromWorker, now: float) -> None:
        """A message of `member` has come; its link is there."""
        if isinstance(message, Fetch):
            return  # it is for another member
        one = self.members.setdefault(member, Member())
        one.linked = not isinstance(message, Leave)
        self._move(one, expected=False)
        if isinstance(message, Leave):
            self._move(one, waits=False)
            if one.phase is not Phase.DONE:
                self._end(member, one, Why.EXPIRED, now)
            self._void_at(member, now)
        elif isinstance(message, Sum):
            self._sum_arrived(member, message, now)
        elif isinstance(message, Blocked):
            self._blocked((member, message.number), now)
        elif isinstance(message, Ready):
            self._ready(member, one, message, now)
        elif isinstance(message, Resume):
            self._resume(member, one, message, now)
        elif message.number == one.last:
            self._tell_outcome(member, one, now)
        elif message.number != one.number:
            self._tell(member, Outcome(message.number, Why.UNKNOWN))
        elif isinstance(message, Offer):
            self._offered(member, one, message, now)
        else:
            self._arrived(member, one, message, now)
        self._go_on(now)

    def left(self, member: int, now: float) -> None:
        """The link of `member` has ended. It may come back."""
        one = self.members.setdefault(member, Member())
        one.linked, one.told = False, 0
        self._move(one, waits=False, expected=False)
        if one.phase is Phase.OPEN:  # nobody waits for what it might bring
            self._to_order(Withdrawn((member, one.number)), now)
        self._void_at(member, now)
        self._go_on(now)

    def answered(self, answer: Any, now: float) -> None:
        """What came of the question."""
        assert self._asking  # there was one
        self._asking = False
        self._gathered = self.aggregate.handle(Answer(answer), self._gathered, now)
        self._commit(now)
        self._go_on(now)

    def passed(self, now: float) -> None:
        """Time has passed: leases may have ended, a quorum may have waited long enough."""
        self._go_on(now)

    def deadline(self) -> float:
        """When `passed` is to be called next; infinite: never."""
        lease = self._leases[0][0] if self._leases else math.inf
        if self._waits and self.gathering is not None:
            lease = min(lease, self.gathering.free_s)
        if self._asking or not self._batch or self._trouble():
            return lease
        return min(lease, self._first_s + self.when.within_s)

    def poll(self) -> Action | None:
        """What is to be done next, after all before it is done; None: nothing."""
        while not self._out and self._early and not self._asking:
            member, payload = self._early.popleft()
            self._count(member, self.members[member], payload, self._now)
            self._go_on(self._now)
        return self._out.popleft() if self._out else None

    def state(self) -> dict[str, Any]:
        """For a checkpoint: plain values and tensors. What has arrived for the next update is not in it."""
        gathered = self._empty if self._batch else self._gathered
        numbers = {member: one.number for member, one in self.members.items()}
        return {"version": self.version, "numbers": numbers, "gathered": plain(gathered)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from the `state` of another hub, before anything was handled."""
        self.version = state["version"]
        self._gathered = filled(self.aggregate.start(), state["gathered"])
        for member, number in state["numbers"].items():
            one = self.members.setdefault(member, Member())
            one.number = one.last = number
        self._to_order(Committed(self.version), 0.0)

    # For a replica

    def replica_state(self) -> dict[str, Any]:
        """What a replica needs to go on from here; the model and the optimizer's state go beside it."""
        last = {member: one.counted for member, one in self.members.items()}
        for member, number in self._batch:
            last[member] = min(last[member], number - 1)
        gathered = self._gathered
        return {"version": self.version, "last": last, "gathered": gathered, "units": len(self._units)}

    def know_counted(self, last: Mapping[int, int]) -> None:
        """Of each member the number of its last task that is in the model."""
        for member, number in last.items():
            one = self.members.setdefault(member, Member())
            one.counted, one.why = number, Why.COUNTED

    def has_counted(self, task: tuple[int, int]) -> bool:
        """Whether a member's task of this number has."""
        return task[0] in self.members and self.members[task[0]].counted >= task[1]

    def may_adopt(self, task: tuple[int, int]) -> bool:
        """Whether it has not counted, and would not be the second of its member in an update."""
        one = self.members.get(task[0])
        return one is None or (task[1] > one.counted and not one.in_batch)

    def adopt(self, copy: Copy, now: float) -> None:
        """Counts a payload that the replica had, and the hub that is gone had not logged, as if it came."""
        ((member, number),) = copy.tasks
        assert isinstance(copy.content, Payload)  # workers send again what was in sums
        one = self.members.setdefault(member, Member())
        one.number, one.version, one.resumed = number, min(copy.versions[0], self.version), True
        one.offer, one.via = copy.offers[0], None
        self._move(one, Phase.GRANTED)
        self._count(member, one, copy.content, now)
        self._go_on(now)

    def _tell(self, member: int, message: FromHub) -> None:
        if self.members[member].linked:
            self._out.append(Tell(member, message))

    # What members say

    def _resume(self, member: int, one: Member, message: Resume, now: float) -> None:
        """What a worker has for a hub that is gone: as if this one had given the task."""
        one.resumed = True
        if message.number <= one.counted:
            self._tell(member, Outcome(message.number, Why.COUNTED))
            return
        if one.phase is not Phase.DONE and one.number != message.number:
            self._end(member, one, Why.EXPIRED, now)
        if one.phase in (Phase.DONE, Phase.OPEN):
            self._move(one, waits=False)
            one.number, one.version = message.number, min(message.version, self.version)
            self._move(one, Phase.OPEN)
            self._lease(member, one, now + self.task_s)
        self._offered(member, one, message.offer, now)

    def _ready(self, member: int, one: Member, message: Ready, now: float) -> None:
        one.resumed = False
        begun = one.phase is not Phase.OPEN or message.last >= one.number
        if one.phase is not Phase.DONE and begun:  # it has forgotten what it was about
            self._end(member, one, Why.EXPIRED, now)
        if message.last > one.number:  # the hub has
            one.number = one.last = message.last
            one.why = Why.UNKNOWN
        self._next(member, one, now)

    def _next(self, member: int, one: Member, now: float) -> None:
        """Another task for `member`, as soon as there is one; or the one that it has not begun, again, on the
        newest model."""
        if one.phase is Phase.OPEN and one.told < _TOLD:
            self._to_order(Withdrawn((member, one.number)), now)
            self._tell_task(member, one, now)
        elif one.phase is Phase.DONE and one.linked and not one.waits:
            self._move(one, waits=True)
            if one.in_batch and self.when.in_step:
                self._after[member] = None
            else:
                self._idle.setdefault(member)  # who comes back keeps its place

    def _tell_task(self, member: int, one: Member, now: float, via: int | None = None) -> None:
        one.version = self.version
        if one.drops >= self.patience:
            self._to_order(Reserved((member, one.number), one.version), now)
        if self.gathering is not None and via is None:
            self.gathering.told[member] = now
        one.told += 1
        self._tell(member, Task(one.number, one.version, via))

    def _tell_outcome(self, member: int, one: Member, now: float) -> None:
        outcome = Outcome(one.last, one.why)
        self._tell(member, outcome)
        if outcome.goes_on and not one.resumed:
            self._next(member, one, now)

    def _offered(self, member: int, one: Member, offer: Offer, now: float) -> None:
        if one.phase is Phase.GRANTED:
            self._tell(member, Grant(one.number, one.via, one.copy_first and one.via is None))
        if one.phase is not Phase.OPEN:
            return
        if not (0 <= offer.samples < math.inf and offer.numbytes >= 0 and 0 <= offer.model_s < math.inf):
            self._end(member, one, Why.ABSURD, now)
            return
        one.offer = offer
        if self.gathering is not None:
            self.gathering.offered(member, offer)
        if one.in_batch:
            self._move(one, Phase.HELD)
            self._held[member] = None
        else:
            self._move(one, Phase.OFFERED)
            self._to_order(Offered(self._transfer(member, one)), now)

    def _transfer(self, member: int, one: Member) -> Transfer:
        assert one.offer is not None  # it was offered
        rate = 1.0 if self.gathering is None else self.gathering.rates.way(member)
        return Transfer((member, one.number), one.offer.numbytes, one.version, rate)

    def _arrived(self, member: int, one: Member, payload: Payload, now: float) -> None:
        if one.phase is Phase.ARRIVED:
            return
        if one.phase is not Phase.GRANTED or one.via is not None:
            self._end(member, one, Why.NOT_GRANTED, now)
        elif self._asking or self._early:
            self._move(one, Phase.ARRIVED)
            self._early.append((member, payload))
        else:
            self._count(member, one, payload, now)

    def _count(self, member: int, one: Member, payload: Payload, now: float) -> None:
        assert one.offer is not None  # it was granted
        if self.gathering is not None:
            self.gathering.arrived((member, one.number), one.offer.numbytes, now)
        delay = max(0, self.version - one.version)  # a hub that is gone may have been ahead
        offer, tasks = one.offer, ((member, one.number),)
        unit = Unit(tasks, None, False, one.version, offer.norm, offer.samples, delay, offer.loss)
        self._gather(unit, self.value(member, payload), now, self.missing(member, payload))

    def _gather(self, unit: Unit, value: Any, now: float, missing: Any = None) -> None:
        """Takes `unit` into the next update."""
        members, arrival = [member for member, _ in unit.tasks], unit.arrival(value, missing)
        self._units.append(unit)
        if not self._batch:
            self._empty = self._gathered
        self._gathered = self.aggregate.handle(arrival, self._gathered, now)
        self._first_s = min(self._first_s, now)
        for member in members:
            one = self.members[member]
            self._batch.append((member, one.number))
            self._move(one, in_batch=True, awaited=True)
            one.drops, one.counted = 0, one.number
        for member in members:
            self._end(member, self.members[member], Why.COUNTED, now)

    def _end(self, member: int, one: Member, why: Why, now: float) -> None:
        """The task of `member` is over, and it is told."""
        key = (member, one.number)
        sent = one.phase in (Phase.GRANTED, Phase.ARRIVED)
        self._to_order(Ended(key) if sent else Withdrawn(key), now)
        if one.phase is Phase.ARRIVED:
            self._early = deque(pair for pair in self._early if pair[0] != member)
        self._move(one, Phase.DONE)
        one.offer, one.last, one.why = None, one.number, why
        if self.copies is not None and why is not Why.COUNTED:
            self.copies.held([key])
        if self.gathering is not None:
            self.gathering.direct.pop(key, None)
            self.gathering.told.pop(member, None)
            if (group := self.gathering.of(key)) is not None:
                self._void(group, now)
        if why is Why.EXPIRED:
            one.drops = 0  # who is waited for and does not come is not waited for again
        if why in (Why.COUNTED, Why.LATE):
            one.due_s = math.inf
        else:
            self._wait_no_longer(one, now)
        self._tell_outcome(member, one, now)

    # What follows

    def _go_on(self, now: float) -> None:
        """All that can be done now."""
        self._now = now
        self._end_leases(now)
        self._commit_if_ready(now)
        self._release(now)
        self._hand_out(now)
        while self._ask_order(now):
            self._hand_out(now)

    def _end_leases(self, now: float) -> None:
        while self._leases and (self._leases[0][0] <= now or not self._holds(self._leases[0])):
            lease = heapq.heappop(self._leases)
            if self._holds(lease):
                _, member, number, phase = lease
                one = self.members[member]
                if phase != _EXPECTED and self._blocked((member, number), now):
                    continue
                one.due_s = now
                if phase == _EXPECTED:
                    self._move(one, expected=False)
                    self._wait_no_longer(one, now)
                else:
                    self._end(member, one, Why.EXPIRED, now)

    def _commit_if_ready(self, now: float) -> None:
        if self._asking or not self._batch:
            return
        if trouble := self._trouble():
            if len(self._batch) >= self._present:
                self._out.append(Abandon(tuple(self._batch), trouble))
                self._gathered = self._empty
                self._end_batch(now)
            return
        in_any_case = now >= self._first_s + self.when.within_s
        if in_any_case or self.when.ready(len(self._batch), self._present):
            self._commit(now)

    def _trouble(self) -> str:
        """Why the rule cannot hold with so few contributions; empty: it can.

        Of two nobody can tell which is hostile, though a quarter of two is none.
        """
        if self.aggregate.compares and len(self._batch) < 3:
            return f"{self.aggregate!r} compares contributions, and there are {len(self._batch)}"
        try:
            self.aggregate.require(len(self._batch))
        except UsageError as error:
            return str(error)
        return ""

    def _commit(self, now: float) -> None:
        found, verdicts, self._gathered = self.aggregate.poll(self._gathered, now)
        if isinstance(found, Question):
            self._asking = True
            self._out.append(Ask(found))
            return
        update = update_of(found, verdicts, isinstance(self.when, Each))
        self.version += 1
        self._out.append(Step(update, self.version, tuple(self._batch), verdicts, tuple(self._units)))
        self._to_order(Committed(self.version), now)
        self._end_batch(now)

    def _end_batch(self, now: float) -> None:
        """The next one begins: with those who had to wait for it."""
        for member, _ in self._batch:
            self._move(self.members[member], in_batch=False)
        self._batch, self._units, self._first_s = [], [], math.inf
        self._idle.update(self._after)
        self._released.extend(self._held)
        self._after, self._held = {}, {}

    def _release(self, now: float) -> None:
        """Offers that have waited for the commit, as there is room."""
        while self._released and (self.tasks is None or self._under_way < self.tasks):
            member = self._released.popleft()
            one = self.members[member]
            if one.phase is Phase.HELD and member not in self._held:  # else it has begun anew meanwhile
                self._move(one, Phase.OFFERED)
                self._to_order(Offered(self._transfer(member, one)), now)

    def _hand_out(self, now: float) -> None:
        """Tasks, to those who have waited longest."""
        told: list[int] = []
        while self._idle and self._has_room():
            member, _ = self._idle.popitem(last=False)
            one = self.members[member]
            if one.waits:  # it has not left meanwhile
                self._move(one, waits=False)
                self._begin(member, one, now)
                told.append(member)
        vias = self.gathering.holders(told, now) if self.gathering is not None and len(told) > 1 else {}
        for member in told:
            self._tell_task(member, self.members[member], now, vias.get(member))

    def _has_room(self) -> bool:
        """Whether one more task may be handed out."""
        full = self.when.round is not None and self._busy + len(self._batch) >= self.when.round
        if full and (self._busy or not self._trouble()):  # else a round is too small for the rule
            return False
        return self.tasks is None or self._under_way < self.tasks

    def _begin(self, member: int, one: Member, now: float) -> None:
        one.number, one.told = one.number + 1, 0
        self._move(one, Phase.OPEN)
        self._wait_no_longer(one, now)
        one.due_s = min(one.due_s, now + self.task_s)
        self._lease(member, one, one.due_s)

    def _wait_no_longer(self, one: Member, now: float) -> None:
        """For who had its time, until it contributes."""
        if one.due_s <= now:
            self._move(one, awaited=False)
            one.due_s = math.inf

    def _lease(self, member: int, one: Member, until: float) -> None:
        one.until = until
        heapq.heappush(self._leases, (until, member, one.number, one.phase.value))
        if len(self._leases) > 2 * self._busy + 64:  # most are of tasks that are over
            self._leases = [lease for lease in self._leases if self._holds(lease)]
            heapq.heapify(self._leases)

    def _holds(self, lease: tuple[float, int, int, str]) -> bool:
        """Whether the task is still in the phase that the lease is on, and has no longer one."""
        until, member, number, phase = lease
        one = self.members[member]
        if phase == _EXPECTED:
            return one.expected and one.due_s <= until
        return (one.number, one.phase.value) == (number, phase) and one.until <= until

    def _ask_order(self, now: float) -> bool:
        """Grants and drops. Returns whether anybody was dropped, and so wants another task."""
        dropped = False
        granted: list[int] = []
        self._waits = self.gathering is not None and self.gathering.must_wait(now)
        while not (self._asking or self._waits):
            decision, self._orders = self.order.poll(self._orders, now)
            if decision is None:
                break
            member, _ = self._owner(decision.key)
            one = self.members[member]
            if not isinstance(decision, Send):
                one.drops += 1
                dropped = True
                self._end(member, one, Why.LATE, now)
            elif self.gathering is None:
                self._grant(member, None, now)
            else:
                granted.append(member)
        if granted:
            self._grant_planned(granted, now)
        return dropped

    def _grant(self, member: int, via: int | None, now: float) -> None:
        one = self.members[member]
        self._move(one, Phase.GRANTED)
        one.via = via
        # Through an aggregator a payload crosses two links; the sum goes after the first half in any case.
        self._lease(member, one, now + (self.payload_s if via is None else 2 * self.payload_s))
        if self.gathering is not None and via is None:
            self.gathering.direct[member, one.number] = now
        if self.copies is not None and one.offer is not None:
            one.copy_first = self.copies.granted((member, one.number), one.offer.norm)
        self._tell(member, Grant(one.number, via, one.copy_first and via is None))

    # Aggregators

    def _grant_planned(self, members: list[int], now: float) -> None:
        """Grants to all of these, which the order has let go in this order."""
        assert self.gathering is not None  # the caller looked
        offers = [(member, self.members[member].offer) for member in members]
        pending = [(member, offer.numbytes) for member, offer in offers if offer is not None]
        idle = (
            number for number, one in self.members.items() if one.linked and one.phase is not Phase.GRANTED
        )
        for planned in self.gathering.plan(pending, idle, now):
            some = members[planned.begin : planned.end]
            if planned.aggregator is not None:
                self._open(planned.aggregator, some, now)
            for member in some:
                self._grant(member, planned.aggregator, now)

    def _open(self, aggregator: int, members: list[int], now: float) -> None:
        """A group begins; its aggregator hears of it before its members do."""
        assert self.gathering is not None  # there is a plan
        tasks = tuple((member, self.members[member].number) for member in members)
        group = self.gathering.open(aggregator, tasks, now)
        first = self.copies is not None and not self.copies.has_room(
            [offer.norm for member in members if (offer := self.members[member].offer) is not None]
        )
        self._tell(aggregator, Gather(group.number, tasks, self.payload_s, first))

    def _sum_arrived(self, aggregator: int, message: Sum, now: float) -> None:
        """Counts what is in it; who has not sent in time sends directly."""
        group = self.gathering.taken(aggregator, message) if self.gathering is not None else None
        if group is None or self.gathering is None:
            return  # it is void
        self.gathering.measured(group, message, self._offered_bytes, now)
        self.gathering.close(group)
        value = self.total(message)
        self._gather_sum(value, group, message.tasks, False, now)
        self._gather_sum(value * math.nan, group, message.left_out, True, now)
        self._grant_again(set(group.tasks) - {*message.tasks, *message.left_out}, now)

    def _gather_sum(
        self, value: Any, group: Open, tasks: tuple[tuple[int, int], ...], left_out: bool, now: float
    ) -> None:
        if not tasks:
            return
        some = [self.members[member] for member, _ in tasks]
        base = min(one.version for one in some)
        samples = sum(one.offer.samples for one in some if one.offer is not None)
        delay = max(0, self.version - base)
        unit = Unit(tasks, group.number, left_out, base, None, samples, delay, via=group.aggregator)
        self._gather(unit, value, now)

    def _offered_bytes(self, task: tuple[int, int]) -> int:
        offer = self.members[task[0]].offer
        return 0 if offer is None else offer.numbytes

    def _blocked(self, task: tuple[int, int], now: float) -> bool:
        """A member cannot reach the aggregator of this task's group, or no sum has come in time: all of
        the group send directly. Whether there is a group."""
        if self.gathering is None or (group := self.gathering.of(task)) is None:
            return False
        self.gathering.rest(group.aggregator, now + self.payload_s)
        self._void(group, now)
        return True

    def _void_at(self, aggregator: int, now: float) -> None:
        """Nothing comes of the groups of a member whose link has ended."""
        if self.gathering is not None and self.gathering.able is not None:
            self.gathering.able.discard(aggregator)
        for group in self.gathering.at(aggregator) if self.gathering is not None else ():
            self._void(group, now)

    def _void(self, group: Open, now: float) -> None:
        assert self.gathering is not None  # there is a group
        self.gathering.close(group)
        self._tell(group.aggregator, Void(group.number))
        self._grant_again(set(group.tasks), now)

    def _grant_again(self, tasks: set[tuple[int, int]], now: float) -> None:
        """They send directly: all that are not over."""
        for member, number in sorted(tasks):
            one = self.members[member]
            if one.phase is Phase.GRANTED and one.number == number:
                self._grant(member, None, now)

    def _owner(self, key: Hashable) -> tuple[int, int]:
        assert isinstance(key, tuple)  # of a member's number and a task's
        return key[0], key[1]

    def _to_order(self, event: Any, now: float) -> None:
        self._orders = self.order.handle(event, self._orders, now)

    def _move(
        self,
        one: Member,
        phase: Phase | None = None,
        waits: bool | None = None,
        in_batch: bool | None = None,
        expected: bool | None = None,
        awaited: bool | None = None,
    ) -> None:
        """Changes what `one` is about, and with it how many are busy or present."""
        self._under_way -= one.phase in _UNDER_WAY
        self._busy -= one.phase is not Phase.DONE
        self._present -= one.present
        one.phase = one.phase if phase is None else phase
        one.waits = one.waits if waits is None else waits
        one.in_batch = one.in_batch if in_batch is None else in_batch
        one.expected = one.expected if expected is None else expected
        one.awaited = one.awaited if awaited is None else awaited
        self._under_way += one.phase in _UNDER_WAY
        self._busy += one.phase is not Phase.DONE
        self._present += one.present
