"""Flows between nodes, as a fluid: the rates of TCP in the long run, without packets.

Each node has one link up and one link down. Flows share them max-min fair: a flow could be faster only if one
that is no faster were slower. That is so where both of these hold:

    a link's level      is what its flows get at most: it is full then, or the level infinite if it is not
    a flow's rate       is the lower of the levels of its two links

After a change the levels of the links concerned are worked out anew, then those of the links that they share
flows with, as far as anything changes. This ends: the lowest level is right once its link was worked out,
then the next one, and so on.

A flow is *at* the link whose level it has. That link keeps how much a flow at it has moved, as one sum for
all of them, so a change of the level touches none.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tweed.errors import UsageError

_SAME = 1e-12  # levels that differ by less, relatively, are the same: the rest is rounding

T = TypeVar("T", bound=Hashable)


class _Heap(Generic[T]):
    """The least of things whose rank may change."""

    def __init__(self) -> None:
        self._items: list[tuple[float, int, int, T]] = []
        self._live: dict[T, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, thing: T) -> bool:
        return thing in self._live

    def put(self, thing: T, rank: float, order: int) -> None:
        """With this rank from now on; of two alike the lower `order` is first."""
        self._count += 1
        self._live[thing] = self._count
        heapq.heappush(self._items, (rank, order, self._count, thing))
        if len(self._items) > 2 * len(self._live) + 64:
            self._items = [item for item in self._items if self._live.get(item[3]) == item[2]]
            heapq.heapify(self._items)

    def remove(self, thing: T) -> None:
        """It is no longer there."""
        self._live.pop(thing, None)

    def first(self) -> tuple[float, T] | None:
        """The least, and its rank; None: there is nothing."""
        while self._items:
            rank, _, count, thing = self._items[0]
            if self._live.get(thing) == count:
                return rank, thing
            heapq.heappop(self._items)
        return None


@dataclass(slots=True, eq=False)
class _Flow:
    """A flow.

    Attributes:
      count: how many were started, with it.
      left: bytes, when it came to the link that it is at.
      up, down: its ends.
      at: the link whose level it has; None: that is not decided yet.
      end: what `moved` of that link is when it ends.
    """

    key: Hashable
    count: int
    left: float
    up: _End = field(init=False)
    down: _End = field(init=False)
    at: _Link | None = None
    end: float = 0.0


@dataclass(slots=True, eq=False)
class _End:
    """A flow at one of its links. `cap`: the level of its other link."""

    flow: _Flow
    link: _Link
    cap: float = math.inf

    @property
    def other(self) -> _End:
        """The end of the same flow at its other link."""
        return self.flow.down if self.flow.up is self else self.flow.up


@dataclass(slots=True, eq=False)
class _Link:
    """One direction of a node. With one flow it is alone: its level is its rate.

    Attributes:
      ends: its flows.
      shared: those whose other link has more flows, so that its level depends on this one's.
      fast: those that have this level, the lowest cap first.
      slow: those with a lower cap, the highest first.
      slow_rate: the sum of these caps.
      here: flows that are at this link, the next to end first.
      moved, since: bytes that each of these has moved up to then.
    """

    number: int
    rate: float
    level: float
    ends: dict[_End, None] = field(default_factory=dict)
    shared: dict[_End, None] = field(default_factory=dict)
    fast: _Heap[_End] = field(default_factory=_Heap)
    slow: _Heap[_End] = field(default_factory=_Heap)
    slow_rate: float = 0.0
    here: _Heap[_Flow] = field(default_factory=_Heap)
    moved: float = 0.0
    since: float = 0.0

    def advance(self, now: float) -> None:
        """What flows have moved until now."""
        if not self.here:
            self.moved = 0.0
        elif self.level < math.inf:
            self.moved += self.level * (now - self.since)
        self.since = now

    def place(self, end: _End, cap: float) -> None:
        """The other link allows this flow `cap`; whether that is slower is left to `work_out`."""
        self.remove(end)
        end.cap = cap
        self.fast.put(end, cap, end.flow.count)

    def remove(self, end: _End) -> None:
        """It takes no part."""
        self.fast.remove(end)
        if end in self.slow:
            self.slow.remove(end)
            self.slow_rate = self.slow_rate - end.cap if self.slow else 0.0

    def work_out(self) -> tuple[float, list[_End]]:
        """The level, and who has become slower than it, or is no longer."""
        changed: list[_End] = []
        while True:
            level = max(0.0, self.rate - self.slow_rate) / len(self.fast) if self.fast else math.inf
            lowest, highest = self.fast.first(), self.slow.first()
            if lowest is not None and lowest[0] < level:
                end = lowest[1]
                self.fast.remove(end)
                self.slow.put(end, -end.cap, end.flow.count)
                self.slow_rate += end.cap
            elif highest is not None and self._too_fast(-highest[0], level):
                end = highest[1]
                self.place(end, end.cap)
            else:
                return level, changed
            changed.append(end)

    def _too_fast(self, cap: float, level: float) -> bool:
        return cap > level if self.fast else self.slow_rate > self.rate * (1 + _SAME)

    def next_end(self) -> float:
        """When the first of those at this link ends, if nothing changes; infinite: never."""
        first = self.here.first()
        if first is None:
            return math.inf
        left = first[0] - self.moved
        if left <= 0:
            return self.since
        return self.since + left / self.level if self.level > 0 else math.inf


class FluidNetwork:
    """Nodes, and flows between them; see above. Times are in seconds and never go back, rates in bytes per
    second.

    Cost: where all flows share one link, as a hub's, a start or an end takes time that grows with the
    logarithm of the flows, and with those that this makes slower than their share, or no longer. In general
    the links that share flows with each other are gone over, some more than once.

    Example:
      >>> network = FluidNetwork()
      >>> for node in "abc":
      ...     network.set_rates(node, up=4.0, down=6.0, now=0.0)
      >>> network.start(1, "a", "c", 12, now=0.0)
      >>> network.start(2, "b", "c", 30, now=0.0)
      >>> network.next_end()
      (4.0, 1)
      >>> network.stop(1, 4.0), network.next_end()  # 18 bytes are left, at 4 a second
      (0.0, (8.5, 2))
    """

    def __init__(self) -> None:
        self._links: dict[Hashable, tuple[_Link, _Link]] = {}
        self._flows: dict[Hashable, _Flow] = {}
        self._count = 0
        self._now = 0.0
        self._next: _Heap[_Link] = _Heap()

    def set_rates(self, node: Hashable, up: float, down: float, now: float) -> None:
        """A node has these rates from now on; one that is not there yet, is.

        Raises: UsageError for rates below 0, or infinite ones.
        """
        if not (0 <= up < math.inf and 0 <= down < math.inf):
            raise UsageError(f"node {node!r}: rates {up} and {down}: give bytes per second, from 0 on")
        if node not in self._links:
            number = 2 * len(self._links)
            self._links[node] = _Link(number, up, up), _Link(number + 1, down, down)
            return
        changed = [one for one in zip(self._links[node], (up, down), strict=True) if one[0].rate != one[1]]
        for link, rate in changed:
            link.rate = rate
        self._settle([link for link, _ in changed], now)

    def start(self, key: Hashable, src: Hashable, dst: Hashable, numbytes: float, now: float) -> None:
        """A flow of so many bytes begins.

        Raises: UsageError for a node that has no rates, or a key that flows already.
        """
        if key in self._flows or src not in self._links or dst not in self._links:
            why = "it flows already" if key in self._flows else "give both nodes rates first, by set_rates"
            raise UsageError(f"flow {key!r} from {src!r} to {dst!r}: {why}")
        self._count += 1
        flow = self._flows[key] = _Flow(key, self._count, float(numbytes))
        flow.up, flow.down = _End(flow, self._links[src][0]), _End(flow, self._links[dst][1])
        for end in (flow.up, flow.down):
            end.link.ends[end] = None
        concerned = [*_take_part(flow.up), *_take_part(flow.down)]
        self._settle([flow.up.link, flow.down.link], now, concerned)

    def stop(self, key: Hashable, now: float) -> float:
        """It ends, done or not; one that is not there is none. Returns the bytes that have not moved."""
        flow = self._flows.pop(key, None)
        if flow is None:
            return 0.0
        assert flow.at is not None  # it has settled
        flow.at.advance(now)
        _leave(flow)
        for end in (flow.up, flow.down):
            _take_leave(end)
        self._settle([flow.up.link, flow.down.link], now)
        return max(0.0, flow.left)

    def next_end(self) -> tuple[float, Hashable | None]:
        """When the next flow will have ended, and which; infinite and None: none will."""
        first = self._next.first()
        if first is None:
            return math.inf, None
        flow = first[1].here.first()
        assert flow is not None  # its end is known
        return max(first[0], self._now), flow[1].key

    def rate(self, key: Hashable) -> float:
        """The rate of a flow that is under way, in bytes per second."""
        flow = self._flows[key]
        return min(flow.up.link.level, flow.down.link.level)

    def _settle(self, links: Iterable[_Link], now: float, flows: Iterable[_Flow] = ()) -> None:
        """Works out the levels of `links` and all that follow, and at which link flows are then: `flows` and
        those for which something changes."""
        self._now = max(self._now, now)
        waiting, moving = deque(links), dict.fromkeys(flows)
        queued, touched = set(waiting), dict.fromkeys(waiting)
        while waiting:
            link = waiting.popleft()
            queued.discard(link)
            touched[link] = None
            link.advance(now)
            link.level, changed = link.work_out() if len(link.ends) > 1 else (link.rate, list(link.ends))
            moving.update((end.flow, None) for end in changed)
            for end in [end.other for end in link.shared]:
                if not _same(end.cap, link.level):
                    end.link.place(end, link.level)
                    moving[end.flow] = None
                    if end.link not in queued:
                        queued.add(end.link)
                        waiting.append(end.link)
        for flow in moving:
            touched.update(dict.fromkeys(_move(flow, now)))
        for link in touched:
            self._next.remove(link)
            if (at := link.next_end()) < math.inf:
                self._next.put(link, at, link.number)


def _same(one: float, other: float) -> bool:
    return one == other or abs(one - other) <= _SAME * min(one, other)


def _take_part(end: _End) -> list[_Flow]:
    """A link that is no longer alone with a flow shares, and its neighbours' levels matter to it. Returns the
    flows for which that is new."""
    link = end.link
    new = list(link.ends) if len(link.ends) == 2 else [end]
    if len(link.ends) > 1:
        for one in new:
            link.place(one, one.other.link.level)
            one.other.link.shared[one.other] = None
    return [one.flow for one in new]


def _take_leave(end: _End) -> None:
    """The flow is over; a link that is alone with one then need not share."""
    link = end.link
    del link.ends[end]
    link.shared.pop(end, None)
    link.remove(end)
    if len(link.ends) == 1:
        [last] = link.ends
        link.remove(last)
        last.other.link.shared.pop(last.other, None)


def _leave(flow: _Flow) -> None:
    """It is at no link."""
    if flow.at is not None:
        flow.left = flow.end - flow.at.moved
        flow.at.here.remove(flow)
        flow.at = None


def _move(flow: _Flow, now: float) -> list[_Link]:
    """To the link whose level it has. Returns the links that this concerns: none if it is there."""
    links = [flow.up.link, flow.down.link]
    # Of two alike, one at which the flow is fast: when that one's level falls, nobody else hears of it.
    fast = [end.link for end in (flow.up, flow.down) if end in end.link.fast]
    best = min(fast or links, key=lambda link: link.level)
    if flow.at is best:
        return []
    for link in links:
        link.advance(now)
    _leave(flow)
    flow.at, flow.end = best, best.moved + flow.left
    best.here.put(flow, flow.end, flow.count)
    return links
