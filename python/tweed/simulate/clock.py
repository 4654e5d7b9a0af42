"""A virtual clock: what is to happen waits in order of time, and nothing sleeps.

    clock = Clock()
    clock.after(2.0, lambda: print("two"))
    clock.run_next()        # prints, and clock.now is 2.0

A driver with other sources of events, such as flows of a network, compares their times with `next_s`, and
calls `pass_to` where one of them comes first.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable


class Clock:
    """Time, and what is to happen.

    At the same time the lower `rank` goes first, then what was asked for first: the same calls give the same
    order.

    Cost: an event takes time that grows with the logarithm of those that wait.

    Attributes:
      now: seconds.

    Example:
      >>> clock, seen = Clock(), []
      >>> clock.after(2.0, lambda: seen.append("b"))
      >>> clock.after(1.0, lambda: seen.append("a"))
      >>> clock.run_next(), clock.run_next(), clock.now, seen
      (None, None, 2.0, ['a', 'b'])
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._count = 0
        self._events: list[tuple[float, int, int, Callable[[], None]]] = []

    def after(self, seconds: float, do: Callable[[], None], rank: int = 0) -> None:
        """`do` happens so much later; if that is never, it is forgotten."""
        self.at(self.now + seconds, do, rank)

    def at(self, at: float, do: Callable[[], None], rank: int = 0) -> None:
        """`do` happens then, or now, if that is over."""
        if at < math.inf:
            self._count += 1
            heapq.heappush(self._events, (at, rank, self._count, do))

    def next_s(self) -> float:
        """When the next event is; infinite: there is none."""
        return self._events[0][0] if self._events else math.inf

    def run_next(self) -> None:
        """Goes to the next event, and lets it happen."""
        at, _, _, do = heapq.heappop(self._events)
        self.pass_to(at)
        do()

    def pass_to(self, now: float) -> None:
        """It is `now`, and nothing happens. Time never goes back."""
        self.now = max(self.now, now)
