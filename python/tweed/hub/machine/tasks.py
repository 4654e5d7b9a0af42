"""Who gets a task: those who want one, in order, as there is room.

    a member    moved by                                            to
    (busy)      its task is over, or it asks                        WAITS; in step, if a contribution of its
                                                                    is in the next update, until the commit
    WAITS       there is room                                       has a task, with the newest model
                its link ends, or it leaves                         (gone)

There is room while fewer than `most` tasks are under way and, in rounds, while a round is not full; a round
that is too small for the rule, and of which nothing more will come, gets one more.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from tweed.hub.machine.grants import Grants
from tweed.hub.machine.member import Member, Phase
from tweed.hub.machine.members import Members
from tweed.hub.machine.schedule import TransferSchedule
from tweed.hub.machine.update_batch import UpdateBatch
from tweed.hub.wire.messages import Task
from tweed.order import Reserved, Withdrawn

#: So often a task goes over one link: each time with the model, though its member may not even read.
_TOLD = 3


@dataclass(slots=True)
class Tasks:
    """See above. Times are in seconds.

    Args:
      members, grants, batch, schedule: of the hub.
      most: are under way at once; None: any number.
      task_s: after so long without an offer, a task is taken back.
      patience: drops in a row after which the next contribution is reserved.
    """

    members: Members
    grants: Grants
    batch: UpdateBatch
    schedule: TransferSchedule
    most: int | None
    task_s: float
    patience: int
    _idle: OrderedDict[int, None] = field(default_factory=OrderedDict)  # who waits for a task
    _after: dict[int, None] = field(default_factory=dict)  # who waits for the commit, to get a task

    @property
    def waiting(self) -> int:
        """How many wait, some of whom may have left meanwhile."""
        return len(self._idle) + len(self._after)

    @property
    def may_begin(self) -> bool:
        """Whether one more may be under way."""
        return self.most is None or self.members.under_way < self.most

    def wanted(self, member: int, one: Member, now: float) -> None:
        """Another task for `member`, as soon as there is one; or the one that it has not begun, again, on the
        newest model."""
        if one.phase is Phase.OPEN and one.told < _TOLD:
            self.schedule.handle(Withdrawn((member, one.number)), now)
            self._tell(member, one, now)
        elif one.phase is Phase.DONE and one.linked and not one.waits:
            self.members.move(one, waits=True)
            if one.in_batch and self.batch.when.in_step:
                self._after[member] = None
            else:
                self._idle.setdefault(member)  # who comes back keeps its place

    def committed(self) -> None:
        """Who waited for the commit waits for room."""
        self._idle.update(self._after)
        self._after = {}

    def hand_out(self, now: float) -> None:
        """Tasks, to those who have waited longest."""
        told: list[int] = []
        while self._idle and self._has_room():
            member, _ = self._idle.popitem(last=False)
            one = self.members[member]
            if one.waits:  # it has not left meanwhile
                self.members.move(one, waits=False)
                self._begin(member, one, now)
                told.append(member)
        vias = self.grants.model_sources(told, now)
        for member in told:
            self._tell(member, self.members[member], now, vias.get(member))

    def _has_room(self) -> bool:
        """Whether one more task may be handed out."""
        busy, batch = self.members.busy, self.batch
        full = batch.when.round is not None and busy + len(batch.tasks) >= batch.when.round
        if full and (busy or not batch.trouble()):  # else a round is too small for the rule
            return False
        return self.may_begin

    def _begin(self, member: int, one: Member, now: float) -> None:
        one.number, one.told, one.described = one.number + 1, 0, False
        self.members.move(one, Phase.OPEN)
        self.members.wait_no_longer(one, now)
        one.due_s = min(one.due_s, now + self.task_s)
        self.members.lease(member, one.due_s)

    def _tell(self, member: int, one: Member, now: float, via: int | None = None) -> None:
        one.version = self.batch.version
        if one.drops >= self.patience:
            self.schedule.handle(Reserved((member, one.number), one.version), now)
        if via is None:
            self.grants.told(member, now)
        one.told += 1
        self.members.tell(member, Task(one.number, one.version, via))
