"""Who may send, and which way: to the hub, or to a member that adds up what several send.

    a task GRANTED      moved by                                        to
    to the hub          its payload, or the end of its lease            (none)
    via an aggregator   the sum of its group, and it is in that         (none)
                        the sum, and it is not; its group is void       to the hub

A group is void when its aggregator is gone, cannot be reached, or has sent no sum when a lease of the group
ends, or what cannot be one; and when one of its tasks ends otherwise. The books of groups and rates are in
`open_groups`.

With aggregators, members that get a task at the same time may be told to fetch the model from
one of them. And all that the order lets go at once is planned together: some send to the hub, others to a
member that adds them up. While the hub's link is not free, what is offered waits, so that there is something
to plan. A sum counts as its contributions do, all in one update. With `Each` that is their sum, as each would
have been an update: which way a contribution took decides nothing about the step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tweed.hub.machine.actions import Distrust
from tweed.hub.machine.member import Phase
from tweed.hub.machine.members import Members
from tweed.hub.machine.norms import may_be_sum
from tweed.hub.machine.open_groups import Aggregation, Open
from tweed.hub.wire.messages import CancelGroup, Gather, Grant, Offer, Sum, Unit

Key = tuple[int, int]  # a member, and the number of its task
_FALSE = "its sum is not finite, or longer than all together that its members have offered"


class CopiesFirst(Protocol):
    """Says of which contributions the standby must have a copy before the hub: see `standby.Divergence`."""

    def granted(self, task: Key, norm: float) -> bool:
        """Whether the copy of what is granted is to go first."""
        ...

    def has_room(self, norms: Sequence[float]) -> bool:
        """Whether all of these could be missing, too."""
        ...

    def held(self, tasks: Iterable[Key]) -> None:
        """The standby has these, or nothing will come of them."""
        ...


def counted_before(last: Mapping[int, int]) -> list[Key]:
    """All tasks up to the last one of each member: what a standby has that got the hub's whole state."""
    return [(member, number) for member, most in last.items() for number in range(most + 1)]


@dataclass(slots=True)
class Grants:
    """See above. Times are in seconds.

    Args:
      members: of the hub.
      payload_s: after so long without the payload, a grant is taken back.
      aggregation: members may add up contributions of others on their way; None: all come directly.
      copies: says of which contributions the standby must have a copy before the hub; None: of none.
    """

    members: Members
    payload_s: float
    aggregation: Aggregation | None = None
    copies: CopiesFirst | None = None

    def grant(self, member: int, via: int | None, now: float) -> None:
        """What `member` has offered may move, by this way; None: to the hub."""
        one = self.members[member]
        self.members.move(one, Phase.GRANTED)
        one.via = via
        # Through an aggregator a payload crosses two links; the sum goes after the first half in any case.
        self.members.lease(member, now + (self.payload_s if via is None else 2 * self.payload_s))
        if self.aggregation is not None and via is None:
            self.aggregation.direct[member, one.number] = now
        if self.copies is not None and one.offer is not None:
            one.copy_first = self.copies.granted((member, one.number), one.offer.norm)
        self.tell(member)

    def tell(self, member: int) -> None:
        """What was granted to it."""
        one = self.members[member]
        self.members.tell(member, Grant(one.number, one.via, one.copy_first and one.via is None))

    def ended(self, member: int, counted: bool, now: float) -> None:
        """The task of `member` is over."""
        key = member, self.members[member].number
        if self.copies is not None and not counted:
            self.copies.held([key])
        if self.aggregation is not None:
            self.aggregation.direct.pop(key, None)
            self.aggregation.told.pop(member, None)
            if (group := self.aggregation.of(key)) is not None:
                self._cancel_group(group, now)

    # Rates

    def told(self, member: int, now: float) -> None:
        """The hub sends it the model."""
        if self.aggregation is not None:
            self.aggregation.told[member] = now

    def offered(self, member: int, offer: Offer) -> None:
        """It says how long the model took to come."""
        if self.aggregation is not None:
            self.aggregation.offered(member, offer)

    def arrived(self, task: Key, numbytes: int, now: float) -> None:
        """A payload has come directly."""
        if self.aggregation is not None:
            self.aggregation.arrived(task, numbytes, now)

    def rate(self, member: int) -> float:
        """The rate of the way from `member` to the hub, in bytes per second; 1 where nothing is measured."""
        return 1.0 if self.aggregation is None else self.aggregation.rates.way(member)

    def must_wait(self, now: float) -> bool:
        """Whether what is offered is left to gather until the hub's link is about to be free."""
        return self.aggregation is not None and self.aggregation.must_wait(now)

    def free_s(self) -> float:
        """When the hub's link is free; infinite without gathering."""
        return math.inf if self.aggregation is None else self.aggregation.free_s

    # Aggregators

    def may_aggregate(self, member: int, now: float) -> None:
        """`member` adds up what others send if it is asked, until its link ends; nothing comes of what it was
        asked for before."""
        if self.aggregation is not None and self.aggregation.able is not None:
            self.lost(member, now)
            self.aggregation.able.add(member)

    def model_sources(self, members: Sequence[int], now: float) -> dict[int, int]:
        """Which of the members that get a task together fetch the model from another one, and from which."""
        several = self.aggregation is not None and len(members) > 1
        return (
            self.aggregation.model_sources(members, now) if several and self.aggregation is not None else {}
        )

    def taken(self, aggregator: int, message: Sum, now: float) -> Open | None:
        """The group that a sum is of, which is over; None: it is void, also if that cannot be the sum."""
        group = self.aggregation.taken(aggregator, message) if self.aggregation is not None else None
        if group is not None and message.tasks and not may_be_sum(message.value, self.norms(message.tasks)):
            self.members.out.append(Distrust(aggregator, _FALSE))
            self.false(group, now)
            return None
        if group is not None and self.aggregation is not None:
            self.aggregation.measured(group, message, self._offered_bytes, now)
            self.aggregation.close(group)
        return group

    def unit(self, group: Open, tasks: tuple[Key, ...], left_out: bool, version: int) -> Unit:
        """As what these tasks of a group count, or come to nothing, while the model has this version."""
        some = [self.members[member] for member, _ in tasks]
        base = min(one.version for one in some)
        samples = sum(one.offer.samples for one in some if one.offer is not None)
        delay = max(0, version - base)
        return Unit(tasks, group.number, left_out, base, None, samples, delay, via=group.aggregator)

    def false(self, group: Open, now: float) -> None:
        """What its aggregator has sent cannot be the sum."""
        assert self.aggregation is not None  # there is a group
        self.aggregation.distrust(group.aggregator)
        self._cancel_group(group, now)

    def norms(self, tasks: Iterable[Key]) -> list[float]:
        """The norms of contributions, as their members say."""
        offers = [self.members[member].offer for member, _ in tasks]
        return [offer.norm for offer in offers if offer is not None]

    def blocked(self, task: Key, now: float) -> bool:
        """A member cannot reach the aggregator of this task's group, or no sum has come in time: all of
        the group send directly. Whether there is a group."""
        if self.aggregation is None or (group := self.aggregation.of(task)) is None:
            return False
        self.aggregation.rest(group.aggregator, now + self.payload_s)
        self._cancel_group(group, now)
        return True

    def lost(self, aggregator: int, now: float) -> None:
        """Nothing comes of the groups of a member whose link has ended."""
        if self.aggregation is not None and self.aggregation.able is not None:
            self.aggregation.able.discard(aggregator)
        for group in self.aggregation.at(aggregator) if self.aggregation is not None else ():
            self._cancel_group(group, now)

    def again(self, tasks: set[Key], now: float) -> None:
        """They send directly: all that are not over."""
        for member, number in sorted(tasks):
            one = self.members[member]
            if one.phase is Phase.GRANTED and one.number == number:
                self.grant(member, None, now)

    def plan(self, members: list[int], now: float) -> None:
        """Grants to all of these, which the order has let go in this order: some send to the hub, others to a
        member that adds them up."""
        aggregation = self.aggregation
        if aggregation is None or not members:
            return
        offers = [(member, self.members[member].offer) for member in members]
        pending = [(member, offer.numbytes) for member, offer in offers if offer is not None]
        known = self.members.by_number.items()
        idle = (number for number, one in known if one.linked and one.phase is not Phase.GRANTED)
        for planned in aggregation.plan(pending, idle, now):
            some = members[planned.begin : planned.end]
            if planned.aggregator is not None:
                self._open(aggregation, planned.aggregator, some, now)
            for member in some:
                self.grant(member, planned.aggregator, now)

    def _open(self, aggregation: Aggregation, aggregator: int, members: list[int], now: float) -> None:
        """A group begins; its aggregator hears of it before its members do."""
        tasks = tuple((member, self.members[member].number) for member in members)
        group = aggregation.open(aggregator, tasks, now)
        norms = self.norms(tasks)
        first = self.copies is not None and not self.copies.has_room(norms)
        self.members.tell(aggregator, Gather(group.number, tasks, self.payload_s, first, tuple(norms)))

    def _cancel_group(self, group: Open, now: float) -> None:
        assert self.aggregation is not None  # there is a group
        self.aggregation.close(group)
        self.members.tell(group.aggregator, CancelGroup(group.number))
        self.again(set(group.tasks), now)

    def _offered_bytes(self, task: Key) -> int:
        offer = self.members[task[0]].offer
        return 0 if offer is None else offer.numbytes
