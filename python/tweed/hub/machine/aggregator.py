"""A member that adds up what others send, and passes on the sum.

    a group     moved by                                        to
    (none)      Gather                                          GATHERING
    GATHERING   a Payload of a task of it                       the same, with one more
                all of its payloads are there, or its time is
                over and there are some                         (none): a Sum goes to the hub
                its time is over, and there are none            the same
                Void, or the link to the hub breaks             (none): nothing comes of it

The hub has the last word: it takes a sum whole or not at all, and a group that it has called void, or whose
aggregator it has lost, it never takes. Members keep what they have sent until the hub has said what became of
it, so a sum that is lost costs time, and nothing else. What is in no group is thrown away.

What has a larger norm than its member has offered is left out, as what is not finite: the hub knows a false
sum by norms, and whoever offers little and sends much would make this member a liar.

Sums are formed in the order of the group's tasks, whoever came first: they are the same bits on each run, and
at whoever forms them again. Payloads are decoded before, each by itself; the sum goes on as it is, as packets
of most codecs do not add up.

What cannot happen: a task is in a sum twice; two sums of a group; something of a group that was void before.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tweed.aggregate import Arrival, Reason
from tweed.aggregate.mean import summed
from tweed.hub.machine.norms import fits
from tweed.hub.wire.messages import CancelGroup, Gather, Payload, Sum

Key = tuple[int, int]  # a member, and the number of its task


@dataclass(slots=True)
class _Group:
    """What is there of one: values in any order, and after how many seconds each came."""

    gather: Gather
    begun: float
    values: dict[Key, Any] = field(default_factory=dict)
    came_s: dict[Key, float] = field(default_factory=dict)

    def due(self) -> float:
        return self.begun + self.gather.within_s if self.values else math.inf


@dataclass(slots=True)
class Aggregator:
    """See above. Times are in seconds.

    Args:
      value: of a member and its payload, what that stands for; called when it arrives.
    """

    value: Callable[[int, Payload], Any] = lambda member, payload: payload.value
    _groups: dict[int, _Group] = field(default_factory=dict)
    _group_of: dict[Key, int] = field(default_factory=dict)
    _out: deque[Sum] = field(default_factory=deque)

    def handle(self, message: Gather | CancelGroup, now: float) -> None:
        """A message of the hub has come."""
        if isinstance(message, CancelGroup):
            self._forget(message.group)
            return
        self._groups[message.group] = _Group(message, now)
        self._group_of.update(dict.fromkeys(message.tasks, message.group))

    def arrived(self, member: int, payload: Payload, now: float) -> None:
        """A payload of `member` has come."""
        key = member, payload.number
        group = self._groups.get(self._group_of.get(key, -1))
        if group is not None and key not in group.values:
            value = self.value(member, payload)
            said = dict(zip(group.gather.tasks, group.gather.norms, strict=False)).get(key, math.nan)
            group.values[key] = value if fits(value, said) else value * math.nan
            group.came_s[key] = now - group.begun
            self._send_if_ready(group, now)

    def unlinked(self) -> None:
        """The link to the hub has broken: to the hub all groups are void."""
        self._groups.clear()
        self._group_of.clear()
        self._out.clear()

    def passed(self, now: float) -> None:
        """Finishes the sums that are due now that time has passed."""
        for group in list(self._groups.values()):
            self._send_if_ready(group, now)

    def deadline(self) -> float:
        """When `passed` is to be called next; infinite: never."""
        return min((group.due() for group in self._groups.values()), default=math.inf)

    def poll(self) -> Sum | None:
        """What is to go to the hub next; None: nothing."""
        return self._out.popleft() if self._out else None

    def _send_if_ready(self, group: _Group, now: float) -> None:
        there = [key for key in group.gather.tasks if key in group.values]
        if there and (len(there) == len(group.gather.tasks) or now >= group.due()):
            self._out.append(_sum(group, there))
            self._forget(group.gather.group)

    def _forget(self, number: int) -> None:
        group = self._groups.pop(number, None)
        for key in group.gather.tasks if group is not None else ():
            if self._group_of.get(key) == number:
                del self._group_of[key]


def _sum(group: _Group, there: list[Key]) -> Sum:
    arrivals = [Arrival(group.values[key], key[0]) for key in there]
    value, reasons = summed(arrivals)
    pairs = list(zip(there, reasons, strict=True))
    tasks = tuple(key for key, reason in pairs if reason is Reason.EQUAL)
    left_out = tuple(key for key, reason in pairs if reason is not Reason.EQUAL)
    return Sum(
        group.gather.group,
        tasks,
        value,
        left_out,
        tuple(group.came_s[key] for key in tasks),
        group.gather.copy_first,
    )
