"""The hub's side of aggregators: which groups are open, at whom, and what has been measured.

    a group     moved by                                            to
    (none)      a grouping                                          OPEN: its members may send, via it
    OPEN        its Sum                                             (none): what is in it counts; the others
                                                                    may send directly
                a Sum that is longer than its parts together        (none): all send directly, and its
                                                                    aggregator is not asked any more
                its aggregator is lost, or one of its tasks ends    (none): all others may send directly

A sum cannot be taken apart. So it is taken as a whole, while each of its tasks is open and of that group; and
a task ends before only if its group does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tweed.hub.machine.grouping import Group, Pending, model_sources, quickest_grouping
from tweed.hub.machine.rates import Rates
from tweed.hub.wire.messages import Offer, Sum

Key = tuple[int, int]  # a member, and the number of its task


@dataclass(frozen=True, slots=True)
class Open:
    """A group.

    Attributes:
      tasks: members and numbers, in the order of the sum.
      since: seconds.
    """

    number: int
    aggregator: int
    tasks: tuple[Key, ...]
    since: float


@dataclass(slots=True)
class Aggregation:
    """Args:
      most: members that may be aggregators at a time.
      sum_bytes: of a sum; 0: as many as the largest of its parts.
      able: who may be one; None: every member.

    Attributes:
      rates: what was measured.
      groups: that are open, by number.
      direct: since when those that were granted may send to the hub itself.
      told: since when the model goes to those that have a task, and have not offered.
      free_s: when the hub's link will be free of all that was planned, as estimated.
    """

    most: int
    sum_bytes: int = 0
    able: set[int] | None = None
    rates: Rates = field(default_factory=Rates)
    groups: dict[int, Open] = field(default_factory=dict)
    direct: dict[Key, float] = field(default_factory=dict)
    told: dict[int, float] = field(default_factory=dict)
    free_s: float = 0.0
    _resting: dict[int, float] = field(default_factory=dict)  # who could not be reached, and until when
    _distrusted: set[int] = field(default_factory=set)
    _group_of: dict[Key, int] = field(default_factory=dict)
    _count: int = 0

    @property
    def streams(self) -> int:
        """So many transfers come to the hub: payloads, and sums."""
        return len(self.direct) + len(self.groups)

    def must_wait(self, now: float) -> bool:
        """Whether what is offered is left to gather until the hub's link is about to be free."""
        return now < self.free_s and self.streams > 0

    def plan(self, pending: Sequence[tuple[int, int]], idle: Iterable[int], now: float) -> tuple[Group, ...]:
        """Which of the `pending` members (each with its bytes, in order) go via which aggregator. `idle`
        members may be aggregators."""
        if not self.rates.hub.rate:
            return (Group(None, 0, len(pending)),)
        some = [Pending(member, numbytes, self.rates.up_rate(member)) for member, numbytes in pending]
        busy = len({group.aggregator for group in self.groups.values()})
        candidates = self.rates.candidates(self._free(idle, now), self.most - busy)
        found = quickest_grouping(some, candidates, self.rates.hub.rate, self.sum_bytes)
        self.free_s = max(now, self.free_s) + found.hub_bytes / self.rates.hub.rate
        return found.groups

    def model_sources(self, members: Sequence[int], now: float) -> dict[int, int]:
        """Which of the `members`, all of which are to have the same model, get it from another member, and
        from which."""
        if not (self.rates.hub.rate and self.rates.hub_up.rate):
            return {}
        candidates = self.rates.candidates(self._free(members, now), self.most)
        count = model_sources(len(members), candidates, self.rates.hub_up.rate)
        chosen = [one.member for one in candidates[:count]]
        rest = [member for member in members if member not in chosen] if chosen else []
        return {member: chosen[place % count] for place, member in enumerate(rest)}

    def _free(self, members: Iterable[int], now: float) -> Iterable[int]:
        """The members among these that may be asked to do something for others."""
        busy = {group.aggregator for group in self.groups.values()} | self._distrusted
        some = members if self.able is None else [one for one in members if one in self.able]
        return [one for one in some if one not in busy and self._resting.get(one, 0.0) <= now]

    def rest(self, aggregator: int, until: float) -> None:
        """Who could not be reached is left alone until then."""
        self._resting[aggregator] = until

    def distrust(self, aggregator: int) -> None:
        """Who has added up wrongly is left alone for good."""
        self._distrusted.add(aggregator)

    def open(self, aggregator: int, tasks: tuple[Key, ...], now: float) -> Open:
        """Opens a group at an aggregator."""
        self._count += 1
        group = self.groups[self._count] = Open(self._count, aggregator, tasks, now)
        self._group_of.update(dict.fromkeys(tasks, group.number))
        return group

    def of(self, task: Key) -> Open | None:
        """The open group that a task is in."""
        return self.groups.get(self._group_of.get(task, 0))

    def at(self, aggregator: int) -> list[Open]:
        """The open groups of a member."""
        return [group for group in self.groups.values() if group.aggregator == aggregator]

    def close(self, group: Open) -> None:
        """Forgets a group that is over."""
        del self.groups[group.number]
        for task in group.tasks:
            del self._group_of[task]

    def taken(self, aggregator: int, message: Sum) -> Open | None:
        """The group that a sum is of, if it is that of an open one of this member; else None."""
        group = self.groups.get(message.group)
        if group is None or group.aggregator != aggregator:
            return None
        named = [*message.tasks, *message.left_out]
        fits = len(set(named)) == len(named) and set(named) <= set(group.tasks) and named
        return group if fits else None

    def offered(self, member: int, offer: Offer) -> None:
        """Takes a rate from how long the model took to come, as the member says."""
        since = self.told.pop(member, 0.0)
        others = [one for one in self.told.values() if one > since - offer.model_s]
        self.rates.received(member, offer.model_bytes, since, since + offer.model_s, others)

    def arrived(self, task: Key, numbytes: int, now: float) -> None:
        """Takes rates from a payload that has come directly."""
        self.rates.at_hub(task[0], numbytes, self.direct.get(task, now), now, self._coming(task))

    def measured(self, group: Open, message: Sum, numbytes: Callable[[Key], int], now: float) -> None:
        """Takes rates from when payloads were at the aggregator, as it says, and when their sum is here: if
        that can be."""
        if not (message.took_s and all(0 < took_s <= now - group.since for took_s in message.took_s)):
            return
        pairs = list(zip(message.tasks, message.took_s, strict=False))
        self.rates.gathered(group.aggregator, [(task[0], numbytes(task), took_s) for task, took_s in pairs])
        size = self.sum_bytes or max((numbytes(task) for task in message.tasks), default=0)
        since = group.since + max(message.took_s, default=0.0)
        self.rates.at_hub(group.aggregator, size, since, now, self._coming(group.number))

    def _coming(self, arrived: Key | int) -> list[float]:
        """Since when all others come to the hub; of a sum nobody knows when its aggregator began to send."""
        direct = [since for task, since in self.direct.items() if task != arrived]
        return direct + [group.since for group in self.groups.values() if group.number != arrived]
