"""The hub's side: who gets a task (`tasks`), who may send (`schedule`, `grants`), what is committed
(`update_batch`).

    phase       moved by                                    to
    DONE        Ready, or the outcome of the last task,
                and there is a task to hand out             OPEN
    OPEN        Offer                                       OFFERED
                Offer, and one of its is in the next update HELD
                its lease ends                              DONE, expired
    HELD        the batch has ended, and there is room      OFFERED
    OFFERED, GRANTED
                its link has ended: over the next one it is
                offered again, and holds up nobody before   OPEN
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

What cannot happen: a contribution counts twice (its task is DONE then); more payloads arrive than were
granted and not taken back; a member that asks for a task waits though one could be handed out; a version is
skipped.

Nothing here has a clock or a socket. All that was handed to it, in that order, with the same `now`, gives the
same actions again, if `value` gives the same.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from tweed.aggregate import Aggregate, CommitRule, Each, Mean
from tweed.errors import UsageError
from tweed.hub.machine.actions import Action, Ask
from tweed.hub.machine.grants import CopiesFirst, Grants
from tweed.hub.machine.member import Member, Phase
from tweed.hub.machine.members import EXPECTED, Members
from tweed.hub.machine.open_groups import Aggregation
from tweed.hub.machine.schedule import TransferSchedule
from tweed.hub.machine.tasks import Tasks
from tweed.hub.machine.update_batch import UpdateBatch
from tweed.hub.wire.messages import (
    Blocked,
    Copy,
    FromWorker,
    Leave,
    ModelRequest,
    Offer,
    Outcome,
    OutcomeReason,
    Payload,
    Ready,
    Resume,
    Sum,
    Unit,
)
from tweed.order import Committed, Ended, FirstIn, Offered, Order, Transfer, Withdrawn

_MEAN, _EACH, _FIRST_IN = Mean(), Each(), FirstIn()


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
      aggregation: members may add up contributions of others on their way; None: all come directly.
      copies: says of which contributions the standby must have a copy before the hub; None: of none.

    Attributes:
      grants: who may send, and which way.
    """

    def __init__(  # noqa: PLR0913 - settings, by their names
        self,
        aggregate: Aggregate[Any] = _MEAN,
        when: CommitRule = _EACH,
        order: Order[Any] = _FIRST_IN,
        tasks: int | None = None,
        task_s: float = 600.0,
        payload_s: float = 60.0,
        patience: int = 3,
        value: Callable[[int, Payload], Any] = lambda member, payload: payload.value,
        missing: Callable[[int, Payload], Any] = lambda member, payload: None,
        total: Callable[[Sum], Any] = lambda message: message.value,
        aggregation: Aggregation | None = None,
        copies: CopiesFirst | None = None,
    ) -> None:
        if tasks is not None and tasks < 1:
            raise UsageError(f"tasks={tasks}: at least one must be handed out, or nobody trains")
        if aggregation is not None and aggregate.in_network is None:
            raise UsageError(f"{aggregate!r} must see each contribution alone: aggregators send sums")
        self.aggregate, self.when, self.order = aggregate, when, order
        self.tasks, self.task_s = tasks, task_s
        self._value, self._missing, self._total = value, missing, total
        self._members, self._batch = Members(), UpdateBatch(aggregate, when)
        self.grants = Grants(self._members, payload_s, aggregation, copies)
        self._schedule = TransferSchedule(order)
        self._tasks = Tasks(self._members, self.grants, self._batch, self._schedule, tasks, task_s, patience)
        self._held: dict[int, None] = {}  # whose offer waits for the commit
        self._released: deque[int] = deque()  # whose offer waits for room, after that
        self._early: deque[tuple[int, Payload]] = deque()  # arrived while a question was open
        self._waits = False  # the order is asked when the hub's link is free
        self._now = 0.0

    @property
    def members(self) -> Mapping[int, Member]:
        """All members, by their number."""
        return self._members.by_number

    @property
    def version(self) -> int:
        """The version of the model."""
        return self._batch.version

    @property
    def aggregation(self) -> Aggregation | None:
        """The books of groups and rates; None: there are no aggregators."""
        return self.grants.aggregation

    def expect(self, member: int, now: float = 0.0) -> None:
        """The link of `member` stands, or soon will: an update may have to wait for it, no longer than for a
        task."""
        self._members.expect(member, now + self.task_s)
        self.members[member].told = 0

    def may_aggregate(self, member: int, now: float) -> None:
        """`member` adds up what others send if it is asked, until its link ends; nothing comes of what it was
        asked for before."""
        self.grants.may_aggregate(member, now)
        self._go_on(now)

    def handle(self, member: int, message: FromWorker, now: float) -> None:
        """A message of `member` has come; its link is there."""
        if isinstance(message, ModelRequest):
            return  # it is for another member
        one = self._members.known(member)
        one.linked = not isinstance(message, Leave)
        self._members.move(one, expected=False)
        if isinstance(message, Leave):
            self._members.move(one, waits=False)
            if one.phase is not Phase.DONE:
                self._end(member, one, OutcomeReason.EXPIRED, now)
            self.grants.lost(member, now)
        elif isinstance(message, Sum):
            self._sum_arrived(member, message, now)
        elif isinstance(message, Blocked):
            self.grants.blocked((member, message.number), now)
        elif isinstance(message, Ready):
            self._ready(member, one, message, now)
        elif isinstance(message, Resume):
            self._resume(member, one, message, now)
        elif message.number == one.last:
            self._tell_outcome(member, one, now)
        elif message.number != one.number:
            self._members.tell(member, Outcome(message.number, OutcomeReason.UNKNOWN))
        elif isinstance(message, Offer):
            self._offered(member, one, message, now)
        else:
            self._arrived(member, one, message, now)
        self._go_on(now)

    def left(self, member: int, now: float) -> None:
        """The link of `member` has ended. It may come back."""
        one = self._members.known(member)
        one.linked, one.told = False, 0
        self._members.move(one, waits=False, expected=False)
        if one.phase is Phase.OPEN:  # nobody waits for what it might bring
            self._schedule.handle(Withdrawn((member, one.number)), now)
        elif one.phase in (Phase.OFFERED, Phase.GRANTED):
            self._take_back(member, one, now)
        self.grants.lost(member, now)
        self._go_on(now)

    def answered(self, answer: Any, now: float) -> None:
        """What came of the question."""
        self._batch.answered(answer, now)
        self._commit(now)
        self._go_on(now)

    def passed(self, now: float) -> None:
        """Time has passed: leases may have ended, a quorum may have waited long enough."""
        self._go_on(now)

    def deadline(self) -> float:
        """When `passed` is to be called next; infinite: never."""
        free_s = self.grants.free_s() if self._waits else math.inf
        return min(self._members.next_end(), free_s, self._batch.due_s())

    def poll(self) -> Action | None:
        """What is to be done next, after all before it is done; None: nothing."""
        out = self._members.out
        while not out and self._early and not self._batch.asking:
            member, payload = self._early.popleft()
            self._count(member, self.members[member], payload, self._now)
            self._go_on(self._now)
        return out.popleft() if out else None

    def state(self) -> dict[str, Any]:
        """For a checkpoint: plain values and tensors. What has arrived for the next update is not in it."""
        return self._batch.state() | {"numbers": {member: one.number for member, one in self.members.items()}}

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from the `state` of another hub, before anything was handled."""
        self._batch.load(state)
        for member, number in state["numbers"].items():
            one = self._members.known(member)
            one.number = one.last = number
        self._schedule.handle(Committed(self.version), 0.0)

    # For a standby

    def standby_state(self) -> dict[str, Any]:
        """What a standby needs to go on from here; the model and the optimizer's state go beside it."""
        last = {member: one.counted for member, one in self.members.items()}
        for member, number in self._batch.tasks:
            last[member] = min(last[member], number - 1)
        batch = self._batch
        return {"version": batch.version, "last": last, "gathered": batch.gathered, "units": len(batch.units)}

    def know_counted(self, last: Mapping[int, int]) -> None:
        """Learns the number of the last task of each member that is in the model."""
        for member, number in last.items():
            one = self._members.known(member)
            one.counted, one.why = number, OutcomeReason.COUNTED

    def has_counted(self, task: tuple[int, int]) -> bool:
        """Whether a member's task of this number has."""
        return task[0] in self.members and self.members[task[0]].counted >= task[1]

    def may_adopt(self, task: tuple[int, int]) -> bool:
        """Whether it has not counted, and would not be the second of its member in an update."""
        one = self.members.get(task[0])
        return one is None or (task[1] > one.counted and not one.in_batch)

    def adopt(self, copy: Copy, now: float) -> None:
        """Counts a payload that the standby had, and the hub that is gone had not logged, as if it came."""
        ((member, number),) = copy.tasks
        assert isinstance(copy.content, Payload)  # workers send again what was in sums
        one = self._members.known(member)
        one.number, one.version, one.resumed = number, min(copy.versions[0], self.version), True
        one.offer, one.via = copy.offers[0], None
        self._members.move(one, Phase.GRANTED)
        self._count(member, one, copy.content, now)
        self._go_on(now)

    # What members say

    def _resume(self, member: int, one: Member, message: Resume, now: float) -> None:
        """What a worker has for a hub that is gone: as if this one had given the task."""
        one.resumed = True
        if message.number <= one.counted:
            self._members.tell(member, Outcome(message.number, OutcomeReason.COUNTED))
            return
        if one.phase is not Phase.DONE and one.number != message.number:
            self._end(member, one, OutcomeReason.EXPIRED, now)
        if one.phase in (Phase.DONE, Phase.OPEN):
            self._members.move(one, waits=False)
            one.number, one.version, one.described = message.number, min(message.version, self.version), False
            self._members.move(one, Phase.OPEN)
            self._members.lease(member, now + self.task_s)
        self._offered(member, one, message.offer, now)

    def _ready(self, member: int, one: Member, message: Ready, now: float) -> None:
        one.resumed = False
        begun = one.phase is not Phase.OPEN or one.described or message.last >= one.number
        if one.phase is not Phase.DONE and begun:  # it has forgotten what it was about
            self._end(member, one, OutcomeReason.EXPIRED, now)
        if message.last > one.number:  # the hub has
            one.number = one.last = message.last
            one.why = OutcomeReason.UNKNOWN
        self._tasks.wanted(member, one, now)

    def _take_back(self, member: int, one: Member, now: float) -> None:
        """What was offered, or granted, holds up nobody any more: over its next link the member offers it
        again."""
        key = (member, one.number)
        self._schedule.handle(Ended(key) if one.phase is Phase.GRANTED else Withdrawn(key), now)
        self._members.move(one, Phase.OPEN)
        one.offer = None
        self.grants.ended(member, False, now)
        self._members.wait_no_longer(one, now)
        self._members.lease(member, min(one.due_s, now + self.task_s))

    def _tell_outcome(self, member: int, one: Member, now: float) -> None:
        outcome = Outcome(one.last, one.why)
        self._members.tell(member, outcome)
        if outcome.goes_on and not one.resumed:
            self._tasks.wanted(member, one, now)

    def _offered(self, member: int, one: Member, offer: Offer, now: float) -> None:
        if one.phase is Phase.GRANTED:
            self.grants.tell(member)
        if one.phase is not Phase.OPEN:
            return
        if not (0 <= offer.samples < math.inf and offer.numbytes >= 0 and 0 <= offer.model_s < math.inf):
            self._end(member, one, OutcomeReason.ABSURD, now)
            return
        one.offer, one.described = offer, True
        self.grants.offered(member, offer)
        if one.in_batch:
            self._members.move(one, Phase.HELD)
            self._held[member] = None
        else:
            self._members.move(one, Phase.OFFERED)
            self._schedule.handle(Offered(self._transfer(member, one)), now)

    def _transfer(self, member: int, one: Member) -> Transfer:
        assert one.offer is not None  # it was offered
        key, numbytes = (member, one.number), one.offer.numbytes
        return Transfer(key, numbytes, one.version, self.grants.rate(member))

    def _arrived(self, member: int, one: Member, payload: Payload, now: float) -> None:
        if one.phase is Phase.ARRIVED:
            return
        if one.phase is not Phase.GRANTED or one.via is not None:
            self._end(member, one, OutcomeReason.NOT_GRANTED, now)
        elif self._batch.asking or self._early:
            self._members.move(one, Phase.ARRIVED)
            self._early.append((member, payload))
        else:
            self._count(member, one, payload, now)

    def _count(self, member: int, one: Member, payload: Payload, now: float) -> None:
        assert one.offer is not None  # it was granted
        self.grants.arrived((member, one.number), one.offer.numbytes, now)
        delay = max(0, self.version - one.version)  # a hub that is gone may have been ahead
        offer, tasks = one.offer, ((member, one.number),)
        unit = Unit(tasks, None, False, one.version, offer.norm, offer.samples, delay, offer.loss)
        self._gather(unit, self._value(member, payload), now, self._missing(member, payload))

    def _gather(self, unit: Unit, value: Any, now: float, missing: Any = None) -> None:
        """Takes `unit` into the next update."""
        members = [member for member, _ in unit.tasks]
        self._batch.take(unit, value, missing, now)
        for member in members:
            one = self.members[member]
            self._members.move(one, in_batch=True, awaited=True)
            one.drops, one.counted = 0, one.number
        for member in members:
            self._end(member, self.members[member], OutcomeReason.COUNTED, now)

    def _end(self, member: int, one: Member, why: OutcomeReason, now: float) -> None:
        """The task of `member` is over, and it receives the outcome."""
        key = (member, one.number)
        sent = one.phase in (Phase.GRANTED, Phase.ARRIVED)
        self._schedule.handle(Ended(key) if sent else Withdrawn(key), now)
        if one.phase is Phase.ARRIVED:
            self._early = deque(pair for pair in self._early if pair[0] != member)
        self._members.move(one, Phase.DONE)
        one.offer, one.last, one.why = None, one.number, why
        self.grants.ended(member, why is OutcomeReason.COUNTED, now)
        if why is OutcomeReason.EXPIRED:
            one.drops = 0  # who is waited for and does not come is not waited for again
        if why in (OutcomeReason.COUNTED, OutcomeReason.LATE):
            one.due_s = math.inf
        else:
            self._members.wait_no_longer(one, now)
        self._tell_outcome(member, one, now)

    # What follows

    def _go_on(self, now: float) -> None:
        """All that can be done now."""
        self._now = now
        self._end_leases(now)
        self._commit_if_ready(now)
        self._release(now)
        self._tasks.hand_out(now)
        while self._ask_order(now):
            self._tasks.hand_out(now)

    def _end_leases(self, now: float) -> None:
        for member, phase in self._members.ended(now):
            one = self.members[member]
            if phase != EXPECTED and self.grants.blocked((member, one.number), now):
                continue
            one.due_s = now
            if phase == EXPECTED:
                self._members.move(one, expected=False)
                self._members.wait_no_longer(one, now)
            else:
                self._end(member, one, OutcomeReason.EXPIRED, now)

    def _commit_if_ready(self, now: float) -> None:
        batch = self._batch
        if batch.asking or not batch.tasks:
            return
        if trouble := batch.trouble():
            if len(batch.tasks) >= self._members.present:
                self._members.out.append(batch.abandon(trouble))
                self._end_batch()
        elif batch.is_due(self._members.present, now):
            self._commit(now)

    def _commit(self, now: float) -> None:
        made = self._batch.commit(now)
        self._members.out.append(made)
        if not isinstance(made, Ask):
            self._schedule.handle(Committed(made.version), now)
            self._end_batch()

    def _end_batch(self) -> None:
        """The next one begins: with those who had to wait for it."""
        for member, _ in self._batch.end():
            self._members.move(self.members[member], in_batch=False)
        self._tasks.committed()
        self._released.extend(self._held)
        self._held = {}

    def _release(self, now: float) -> None:
        """Offers that have waited for the commit, as there is room."""
        while self._released and self._tasks.may_begin:
            member = self._released.popleft()
            one = self.members[member]
            if one.phase is Phase.HELD and member not in self._held:  # else it has begun anew meanwhile
                self._members.move(one, Phase.OFFERED)
                if one.linked:
                    self._schedule.handle(Offered(self._transfer(member, one)), now)
                else:
                    self._take_back(member, one, now)

    def _ask_order(self, now: float) -> bool:
        """Grants and drops. Returns whether anybody was dropped, and so wants another task."""
        dropped = False
        granted: list[int] = []
        self._waits = self.grants.must_wait(now)
        while not (self._batch.asking or self._waits):
            if (turn := self._schedule.next(now)) is None:
                break
            member, may_send = turn
            one = self.members[member]
            if not may_send:
                one.drops += 1
                dropped = True
                self._end(member, one, OutcomeReason.LATE, now)
            elif self.aggregation is None:
                self.grants.grant(member, None, now)
            else:
                granted.append(member)
        self.grants.plan(granted, now)
        return dropped

    def _sum_arrived(self, aggregator: int, message: Sum, now: float) -> None:
        """Counts what is in it; who has not sent in time sends directly."""
        if (group := self.grants.taken(aggregator, message, now)) is None:
            return  # it is void
        value = self._total(message)
        for tasks, left_out in ((message.tasks, False), (message.left_out, True)):
            if tasks:
                unit = self.grants.unit(group, tasks, left_out, self.version)
                self._gather(unit, value * math.nan if left_out else value, now)
        self.grants.again(set(group.tasks) - {*message.tasks, *message.left_out}, now)
