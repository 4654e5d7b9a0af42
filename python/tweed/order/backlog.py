"""How many wait by version, and up to which version they are too many."""

from __future__ import annotations

import math


class Backlog:
    """Counts by version. It is asked for the lowest version up to which too many wait.

    A tree over a range of versions, which grows with those that are counted. A leaf is one less its version's
    count: leaves up to a version add up to how far that is from the first one, less those that wait up to it.
    A node keeps the sum of its leaves, and the least that they add up to at a version that somebody waits on.

    Cost: a change or a question takes time that grows with the logarithm of the range of versions.

    Example:
      >>> backlog = Backlog()
      >>> for version in (5, 5, 7):
      ...     backlog.add(version, 1)
      >>> backlog.full(2), backlog.full(3)
      (None, (5, 0))
      >>> backlog.add(5, -1)
      >>> backlog.full(3), backlog.full(4), backlog.full(5)
      (None, (5, 0), (5, 0))
    """

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._origin, self._size = 0, 1  # versions from the origin on have leaves, a power of two of them
        self._sums = [1, 1]  # of the nodes: the root is 1, children of n are 2n and 2n + 1
        self._least: list[float] = [math.inf, math.inf]

    def add(self, version: int, count: int) -> None:
        """So many more wait; fewer, if it is negative."""
        total = self._counts.pop(version, 0) + count
        if total:
            self._counts[version] = total
        if self._origin <= version < self._origin + self._size:
            self._set(version)
        else:
            self._grow()

    def full(self, most: int) -> tuple[int, int] | None:
        """The lowest version that somebody waits on and that is, less how many wait up to it, at most `most`;
        and how many wait below it. None: there is none."""
        bound, before, node = most + 1 - self._origin, 0, 1
        if self._least[1] > bound:
            return None
        while node < self._size:
            node *= 2
            if before + self._least[node] > bound:  # then to the right
                before += self._sums[node]
                node += 1
        beyond = node - self._size
        return beyond + self._origin, beyond - before

    def _set(self, version: int) -> None:
        """Brings the leaf of `version` up to date, and all above it."""
        node, count = version - self._origin + self._size, self._counts.get(version, 0)
        sums, least = self._sums, self._least
        sums[node], least[node] = 1 - count, 1 - count if count else math.inf
        while node > 1:
            node //= 2
            left, right = 2 * node, 2 * node + 1
            sums[node] = sums[left] + sums[right]
            least[node] = min(least[left], sums[left] + least[right])

    def _grow(self) -> None:
        """Leaves for all versions that are counted, and as many that will come."""
        self._origin = min(self._counts)
        span = max(self._counts) - self._origin + 1
        self._size = 1 << max(span.bit_length(), 6)
        self._sums, self._least = [1] * 2 * self._size, [math.inf] * 2 * self._size
        for node in range(self._size - 1, 0, -1):
            self._sums[node] = 2 * self._sums[2 * node]
        for version in self._counts:
            self._set(version)
