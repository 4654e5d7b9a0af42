"""Whatever waits goes by one rank: first in, newest first, shortest first."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass, field

from tweed.errors import UsageError
from tweed.order.base import Committed, Ended, Event, Offered, Reserved, Send, Transfer


@dataclass(slots=True)
class Queue:
    """A state.

    Attributes:
      heap: rank, number of the offer, key; also of those that no longer wait.
      waiting: number of the offer by key.
      under_way: keys.
      offers: so far.
    """

    heap: list[tuple[float, int, Hashable]] = field(default_factory=list)
    waiting: dict[Hashable, int] = field(default_factory=dict)
    under_way: set[Hashable] = field(default_factory=set)
    offers: int = 0


@dataclass(frozen=True, slots=True)
class FirstIn:
    """What was offered first goes first.

    Args:
      at_once: so many are under way together.

    Raises: UsageError if that is none.
    Cost: an event takes time that grows with the logarithm of those that wait.
    """

    at_once: int = 1

    def __post_init__(self) -> None:
        if self.at_once < 1:
            raise UsageError(f"{self!r}: at_once is to be at least 1")

    def rank(self, transfer: Transfer) -> float:
        """The lowest goes first; of two alike, the first that was offered."""
        return 0.0

    def start(self) -> Queue:
        return Queue()

    def handle(self, event: Event, state: Queue, now: float) -> Queue:
        """Nothing is ever dropped, so nothing needs to be reserved."""
        if isinstance(event, Offered):
            state.offers += 1
            state.waiting[event.transfer.key] = state.offers
            heapq.heappush(state.heap, (self.rank(event.transfer), state.offers, event.transfer.key))
            if len(state.heap) > 2 * len(state.waiting) + 64:  # most no longer wait
                state.heap = [item for item in state.heap if state.waiting.get(item[2]) == item[1]]
                heapq.heapify(state.heap)
        elif isinstance(event, Ended):
            state.under_way.discard(event.key)
        elif not isinstance(event, Committed | Reserved):
            state.waiting.pop(event.key, None)
        return state

    def poll(self, state: Queue, now: float) -> tuple[Send | None, Queue]:
        while state.heap and len(state.under_way) < self.at_once:
            _, number, key = heapq.heappop(state.heap)
            if state.waiting.get(key) == number:
                del state.waiting[key]
                state.under_way.add(key)
                return Send(key), state
        return None, state


@dataclass(frozen=True, slots=True)
class NewestFirst(FirstIn):
    """What was computed on the newest version goes first: old transfers may wait for ever."""

    def rank(self, transfer: Transfer) -> float:
        return -transfer.base_version


@dataclass(frozen=True, slots=True)
class ShortestFirst(FirstIn):
    """What takes the least time goes first: the mean time until a transfer has ended is the least."""

    def rank(self, transfer: Transfer) -> float:
        return transfer.seconds
