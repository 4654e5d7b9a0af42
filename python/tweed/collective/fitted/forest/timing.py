"""When each link serves each tree, so that all links stay busy while pieces follow each other.

In every period, a link carries one piece of each tree that uses it, in a fixed order; a piece may be periods
behind the one that its parent sends. That is modulo scheduling (Rau, "Iterative modulo scheduling", 1994),
without the iteration, as a link always has room.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import NamedTuple

from tweed._core import Topology
from tweed.collective.fitted.trees import Edge, Tree

Link = tuple[int, int]

_FINEST = 4
"""A link has at most so many times as many slots as the most used one is used; it need not be quicker."""


class Plan(NamedTuple):
    """Trees with steps, and how many steps each piece is behind the one before."""

    down: list[Tree]
    up: list[Tree]
    stride: int


def timed(down: Sequence[Tree], up: Sequence[Tree], topology: Topology) -> Plan:
    """Gives every edge of the trees a step; the steps that they have do not count.

    Args:
      down: values spread along these.
      up: sums come in along these, against their direction: they use the links turned round.
      topology: the links.
    """
    growing = [_Growing(tree, sign) for sign, trees in ((1, down), (-1, up)) for tree in trees]
    table = _Table(growing, topology)
    waiting = [
        (0.0, *edge, place) for place, tree in enumerate(growing) for edge in tree.after(tree.tree.root)
    ]
    heapq.heapify(waiting)
    while waiting:
        ready, _, index, place = heapq.heappop(waiting)
        tree = growing[place]
        edge = tree.tree.edges[index]
        step, end = table.take(edge, ready, tree.sign)
        tree.edges.append(edge._replace(step=step))
        for after in tree.after(edge.child):
            heapq.heappush(waiting, (end, *after, place))
    done = [Tree(tree.tree.root, tuple(tree.edges)) for tree in growing]
    return Plan(done[: len(down)], done[len(down) :], table.stride)


def way(edge: Edge, sign: int = 1) -> list[Link]:
    """The links of an edge, in order from its parent; turned round where `sign` is -1."""
    hops = pairwise((edge.parent, *edge.route, edge.child))
    return list(hops) if sign > 0 else [(b, a) for a, b in hops]


@dataclass
class _Growing:
    """A tree whose edges get their times from the root on; those with most below them go before others."""

    tree: Tree
    sign: int
    edges: list[Edge] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._below: dict[int, list[tuple[int, int]]] = {}
        height: dict[int, int] = {}
        for index, edge in reversed(list(enumerate(self.tree.edges))):
            above = 1 + height.get(edge.child, 0)
            height[edge.parent] = max(height.get(edge.parent, 0), above)
            self._below.setdefault(edge.parent, []).append((-above, index))

    def after(self, node: int) -> list[tuple[int, int]]:
        """(minus the height below, index) of the edges from `node`."""
        return self._below.get(node, [])


class _Table:
    """Which slots of which links are taken. Times are in periods.

    `stride` is the number of steps of a period: the slots of the link that has most.
    """

    def __init__(self, trees: Sequence[_Growing], topology: Topology) -> None:
        used = Counter(link for tree in trees for edge in tree.tree.edges for link in way(edge, tree.sign))
        wires = {(a, b): (bandwidth, count) for a, b, bandwidth, _, count in topology.links}
        total = {link: wires[link][0] * wires[link][1] for link in used}
        period = max(Fraction(many, total[link]) for link, many in used.items())
        most = _FINEST * max(used.values())
        self._slots = {link: max(used[link], min(most, int(total[link] * period))) for link in used}
        self._side_by_side = {link: min(wires[link][1], self._slots[link]) for link in used}
        self._taken: dict[Link, set[int]] = {link: set() for link in used}
        self.stride = max(self._slots.values())

    def take(self, edge: Edge, ready: float, sign: int) -> tuple[int, float]:
        """The step at which an edge starts, and the time when the piece is across."""
        first, *others = way(edge, sign)
        slot = self._first(first, ready, sign)
        step, end = self._step(slot, self._slots[first], sign), self._end(first, slot)
        for link in others:
            slot = self._first(link, slot / self._slots[first], sign)
            first, end = link, max(end, self._end(link, slot))
        return step, end

    def _end(self, link: Link, slot: int) -> float:
        return (slot + self._side_by_side[link]) / self._slots[link]

    def _first(self, link: Link, ready: float, sign: int) -> int:
        """The first slot of the link that starts at `ready` or later and is free in every period."""
        many, taken = self._slots[link], self._taken[link]
        slot = ceil(ready * many - 1e-9)
        while (residue := (slot if sign > 0 else -1 - slot) % many) in taken:
            slot += 1
        taken.add(residue)
        return slot

    def _step(self, slot: int, many: int, sign: int) -> int:
        """Steps are as long as the shortest slots; those of sums count from the end, where the root is."""
        return slot * self.stride // many if sign > 0 else -(-(slot + 1) * self.stride // many) - 1
