"""Shortest first, as far as every transfer is committed before too many others are."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain, islice
from typing import NamedTuple

from tweed.errors import UsageError
from tweed.order.backlog import Backlog
from tweed.order.base import Committed, Drop, Ended, Event, Offered, Reserved, Send, Transfer, Withdrawn


class _Level(IntEnum):
    """The order among transfers of one version: the lower level goes first."""

    RESERVED = 0
    PROMISED = 1  # it was reserved, and waits now
    FREE = 2


class _Place(NamedTuple):
    """Where something waits: before all that is greater."""

    base_version: int
    level: _Level
    number: int  # ascending, of those that joined


class _Urgent(NamedTuple):
    """The first `size` transfers by deadline, which must go before any other; all of lower versions are among
    them."""

    base_version: int
    size: int
    too_many: bool  # one of them must be dropped


@dataclass(slots=True)
class Deadlines:
    """A state.

    Attributes:
      places: of all that waits, and of what was promised not to be dropped and was not offered yet, by key.
      queues: the same by version and level, in the order in which they joined; None: not offered yet.
      by_deadline: versions and levels that have a queue, ascending.
      backlog: how many are queued on each version.
      by_seconds: a heap of seconds, place and key; also of those that no longer wait.
      promises: how many must not be dropped.
      joined: how many ever did.
      under_way: base versions, by key.
      version: of the model.
    """

    places: dict[Hashable, _Place] = field(default_factory=dict)
    queues: dict[tuple[int, _Level], dict[Hashable, Transfer | None]] = field(default_factory=dict)
    by_deadline: list[tuple[int, _Level]] = field(default_factory=list)
    backlog: Backlog = field(default_factory=Backlog)
    by_seconds: list[tuple[float, _Place, Hashable]] = field(default_factory=list)
    promises: int = 0
    joined: int = 0
    under_way: dict[Hashable, int] = field(default_factory=dict)
    version: int = 0

    def join(self, key: Hashable, base_version: int, level: _Level, transfer: Transfer | None) -> None:
        """It is queued from now on, and nowhere else."""
        self.leave(key)
        self.joined += 1
        place = self.places[key] = _Place(base_version, level, self.joined)
        if place[:2] not in self.queues:
            insort(self.by_deadline, place[:2])
        self.queues.setdefault(place[:2], {})[key] = transfer
        self.backlog.add(base_version, 1)
        self.promises += level is not _Level.FREE
        if transfer is not None:
            heapq.heappush(self.by_seconds, (transfer.seconds, place, key))
            self._compact()

    def leave(self, key: Hashable) -> None:
        """It is no longer queued."""
        place = self.places.pop(key, None)
        if place is None:
            return
        queue = self.queues[place[:2]]
        del queue[key]
        if not queue:
            del self.queues[place[:2]], self.by_deadline[bisect_left(self.by_deadline, place[:2])]
        self.backlog.add(place.base_version, -1)
        self.promises -= place.level is not _Level.FREE

    def first(self, count: int) -> list[Transfer]:
        """The transfers that wait among the first `count` by deadline."""
        queued = chain.from_iterable(self.queues[place].values() for place in self.by_deadline)
        return [one for one in islice(queued, count) if one is not None]

    def shortest(self) -> Transfer | None:
        """The shortest transfer that waits; of several equal ones, the most urgent."""
        while self.by_seconds:
            _, place, key = self.by_seconds[0]
            if self.places.get(key) == place:
                return self.queues[place[:2]][key]
            heapq.heappop(self.by_seconds)
        return None

    def _compact(self) -> None:
        """Keeps the heap short: at least half of it waits, or it has few entries."""
        if len(self.by_seconds) > 2 * len(self.places) + 64:
            self.by_seconds = [one for one in self.by_seconds if self.places.get(one[2]) == one[1]]
            heapq.heapify(self.by_seconds)


@dataclass(frozen=True, slots=True)
class BoundedDelay:
    """No transfer is committed more than `most` versions after that which it was computed on.

    With `u` under way, what is sent next is committed at version `v + u` at the latest, if each is a commit
    of its own. So a transfer has its deadline, counted in commits:

        slack of the i-th by deadline = base version + most - (v + u + i)

    - Below zero: one of the first i must be dropped. That is the longest of them.
    - Zero: all of the first i must be sent before any other. The shortest of them goes next.
    - Else: the shortest of all goes next.

    Those under way may end in any order: another one joins them only if each could be the last.

    What is reserved counts as if it waited; where its slack is zero, all others wait for it. So that this can
    be kept, reservations are heard only as long as there are fewer than `most - at_once` of them.

    Args:
      most: versions.
      at_once: so many are under way together.

    Raises: UsageError for settings that cannot be.
    Cost: an event takes time that grows with the logarithm of those that wait; a decision also goes over
      those under way, and where some must be sent before any other, over these.
    Source: MLfabric (arXiv 1907.00434, 2019), stage 1: "ordering"; the choice among feasible ones is worked
      out here. That reserved transfers are waited for is ours.
    """

    most: int
    at_once: int = 1

    def __post_init__(self) -> None:
        if self.most < 0 or self.at_once < 1:
            raise UsageError(f"{self!r}: most is to be from 0 on, at_once at least 1")

    def start(self) -> Deadlines:
        return Deadlines()

    def handle(self, event: Event, state: Deadlines, now: float) -> Deadlines:
        if isinstance(event, Offered):
            transfer = event.transfer
            promised = state.places.get(transfer.key, (0, _Level.FREE))[1] is not _Level.FREE
            level = _Level.PROMISED if promised else _Level.FREE
            state.join(transfer.key, transfer.base_version, level, transfer)
        elif isinstance(event, Reserved):
            if state.promises < self.most - self.at_once:
                state.join(event.key, event.base_version, _Level.RESERVED, None)
        elif isinstance(event, Ended):
            state.under_way.pop(event.key, None)
        elif isinstance(event, Committed):
            state.version = event.version
        elif isinstance(event, Withdrawn):
            state.leave(event.key)
        return state

    def poll(self, state: Deadlines, now: float) -> tuple[Send | Drop | None, Deadlines]:
        """What can no longer be in time is dropped at once, though nothing may be sent now."""
        first = state.version + len(state.under_way)
        urgent = self._urgent(state, first)
        if urgent is not None and urgent.too_many and (late := self._longest(state, urgent)) is not None:
            state.leave(late.key)
            return Drop(late.key), state
        oldest = min(state.under_way.values(), default=first)
        if len(state.under_way) >= self.at_once or oldest + self.most < first:
            return None, state
        chosen = self._shortest(state, urgent)
        if chosen is None:
            return None, state
        state.leave(chosen.key)
        state.under_way[chosen.key] = chosen.base_version
        return Send(chosen.key), state

    def _urgent(self, state: Deadlines, first: int) -> _Urgent | None:
        """The transfers up to the first one that has no slack; None: all have some.

        Slack falls from one to the next of the same version. So the first version is looked for whose last
        one has none, and then the place of the first one of it that has none.
        """
        full = state.backlog.full(first - self.most - 1)
        if full is None:
            return None
        base_version, before = full
        place = base_version + self.most - first
        return _Urgent(base_version, max(place, before) + 1, too_many=place < before)

    def _longest(self, state: Deadlines, urgent: _Urgent) -> Transfer | None:
        """The longest of the urgent transfers that may be dropped."""
        waiting = state.first(urgent.size)
        free = (one for one in waiting if state.places[one.key].level is _Level.FREE)
        return max(free, key=lambda one: one.seconds, default=None)

    def _shortest(self, state: Deadlines, urgent: _Urgent | None) -> Transfer | None:
        """The shortest of the urgent transfers if there are any, else of all."""
        shortest = state.shortest()
        if urgent is None or shortest is None or shortest.base_version < urgent.base_version:
            return shortest
        return min(state.first(urgent.size), key=lambda one: one.seconds, default=None)
