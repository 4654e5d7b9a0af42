"""Slots: which part of every period a link serves which send."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from tweed._core import Topology

Link = tuple[int, int]
Name = tuple[int, int]

_FINEST = 4
"""A link has at most so many times as many slots as the busiest one has sends; it need not be quicker."""

_PATIENCE = 8
"""So many times as many sends as there are may be moved, before those left have to wait at switches."""

_SLACK = 0.25
"""What comes through a switch is planned to go on so much of a period later: at a switch pieces wait for
each other as they come, and a plan without slack would pass every delay on."""

_TINY = 1e-9


class Send(NamedTuple):
    """The links that it takes, from the root's side on; `up` if it takes them in the other direction.

    The time of those that go up runs backwards.
    """

    links: tuple[Link, ...]
    up: bool


class Slots:
    """Links have different numbers of slots, as they differ in bandwidth. Times are in periods.

    `period` is the number of steps of a period: the slots of the link that has most.
    """

    def __init__(self, sends: Mapping[Name, Send], topology: Topology) -> None:
        self._sends = sends
        used = Counter(link for send in sends.values() for link in send.links)
        wires = {(a, b): (bandwidth, count) for a, b, bandwidth, _, count in topology.links}
        total = {link: wires[link][0] * wires[link][1] for link in used}
        period = max(Fraction(many, total[link]) for link, many in used.items())
        most = _FINEST * max(used.values())
        self._many = {link: max(used[link], min(most, int(total[link] * period))) for link in used}
        self._lasting = {link: min(wires[link][1], self._many[link]) / self._many[link] for link in used}
        self._taken: dict[Link, dict[int, Name]] = {link: {} for link in used}
        self._given: dict[Name, tuple[int, ...]] = {}
        self._left: deque[Name] = deque()
        self._moved: Counter[Name] = Counter()
        self.period = max(self._many.values())

    def place(self, name: Name, ready: float) -> float:
        """Gives a send the first slots from `ready` on in which its links are free; when it ends."""
        many = self._many[self._sends[name].links[0]]
        start = ceil(ready * many - _TINY)
        for slot in range(start, start + many):
            slots = self._together(name, slot)
            if not self._occupants(name, slots):
                self._give(name, slots)
                return self.when(name, ready)[1]
        self._left.append(name)
        return ready + 1

    def settle(self) -> None:
        """Finds slots for the sends that found none free, if need be those of others."""
        for _ in range(_PATIENCE * len(self._sends)):
            if not self._left:
                return
            name = self._left.popleft()
            slots = self._cheapest(name)
            for other in self._occupants(name, slots):
                self._take_away(other)
                self._left.append(other)
            self._give(name, slots)
        while self._left:
            name = self._left.popleft()
            self._give(name, self._one_by_one(name))

    def when(self, name: Name, ready: float) -> tuple[int, float]:
        """The step at which a send starts that has its slots and can start at `ready`, and when it ends."""
        links, up = self._sends[name]
        end = steps = 0.0
        for link, slot in zip(links, self._given[name], strict=True):
            many = self._many[link]
            slot += many * ceil((ready * many - _TINY - slot) / many)
            ready = slot / many
            end = max(end, ready + self._lasting[link])
            if up:
                steps = -(-(slot + 1) * self.period // many) - 1
            elif link == links[0]:
                steps = slot * self.period // many
        return int(steps), end + _SLACK * (len(links) > 1)

    def _together(self, name: Name, slot: int) -> tuple[int, ...]:
        """The slots of all its links, if a send starts at `slot` of its first."""
        links = self._sends[name].links
        at = slot / self._many[links[0]]
        slots = (slot, *(ceil(at * self._many[link] - _TINY) for link in links[1:]))
        return tuple(slot % self._many[link] for link, slot in zip(links, slots, strict=True))

    def _cheapest(self, name: Name) -> tuple[int, ...]:
        """The slots that belong to the fewest others, and to those that have been moved least."""
        many = self._many[self._sends[name].links[0]]
        start = (
            self._moved[name] * 7919
        )  # another one each time, so that two do not chase each other for ever
        choices = (self._together(name, (start + slot) % many) for slot in range(many))
        return min(choices, key=lambda slots: self._price(name, slots))

    def _price(self, name: Name, slots: tuple[int, ...]) -> int:
        return sum(1 + self._moved[other] for other in self._occupants(name, slots))

    def _one_by_one(self, name: Name) -> tuple[int, ...]:
        """The first free slot of each link; there is one, as no link has more sends than slots."""
        send = self._sends[name]
        free = (
            next(
                slot
                for slot in range(self._many[link])
                if self._key(link, slot, send.up) not in self._taken[link]
            )
            for link in send.links
        )
        return tuple(free)

    def _occupants(self, name: Name, slots: tuple[int, ...]) -> set[Name]:
        links, up = self._sends[name]
        found = (
            self._taken[link].get(self._key(link, slot, up)) for link, slot in zip(links, slots, strict=True)
        )
        return {other for other in found if other is not None}

    def _give(self, name: Name, slots: tuple[int, ...]) -> None:
        links, up = self._sends[name]
        self._given[name] = slots
        for link, slot in zip(links, slots, strict=True):
            self._taken[link][self._key(link, slot, up)] = name

    def _take_away(self, name: Name) -> None:
        links, up = self._sends[name]
        for link, slot in zip(links, self._given.pop(name), strict=True):
            del self._taken[link][self._key(link, slot, up)]
        self._moved[name] += 1

    def _key(self, link: Link, slot: int, up: bool) -> int:
        """The slot as time runs forwards."""
        return self._many[link] - 1 - slot if up else slot
