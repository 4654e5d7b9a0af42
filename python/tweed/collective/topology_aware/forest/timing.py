"""When each link serves each tree, so that all links stay busy while pieces follow each other.

In every period, a link carries one piece of each tree that uses it, in a fixed order; a piece may be periods
behind the one that its parent sends. A send gets slots in which it finds all links of its path free, so that
nothing waits at a switch. Where there are none it takes those of others, and they look again.

Source: Rau, "Iterative modulo scheduling", 1994.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from tweed._core import Topology
from tweed.collective.topology_aware.forest.slots import Link, Send, Slots
from tweed.collective.topology_aware.trees import Edge, Tree


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

    Cost: 10 to 100 us for each edge.
    """
    trees = [*down, *up]
    sends = {
        (place, index): Send(path(edge, 1 if place < len(down) else -1), place >= len(down))
        for place, tree in enumerate(trees)
        for index, edge in enumerate(tree.edges)
    }
    slots = Slots(sends, topology)
    _from_the_roots(trees, slots.place)
    slots.settle()
    steps: dict[tuple[int, int], int] = {}

    def start(name: tuple[int, int], ready: float) -> float:
        steps[name], end = slots.when(name, ready)
        return end

    _from_the_roots(trees, start)
    done = [
        Tree(tree.root, tuple(e._replace(step=steps[place, index]) for index, e in enumerate(tree.edges)))
        for place, tree in enumerate(trees)
    ]
    return Plan(done[: len(down)], done[len(down) :], slots.period)


def path(edge: Edge, sign: int = 1) -> tuple[Link, ...]:
    """The links of an edge, in order from its parent; turned round where `sign` is -1."""
    hops = pairwise((edge.parent, *edge.route, edge.child))
    return tuple(hops) if sign > 0 else tuple((b, a) for a, b in hops)


def _from_the_roots(trees: Sequence[Tree], visit: Callable[[tuple[int, int], float], float]) -> None:
    """Goes over all edges in the order in which they can start; those with most below them before others.

    `visit` is given the number of a tree, that of an edge, and when it can start; it says when that ends.
    """
    below = [_below(tree) for tree in trees]
    waiting = [(0.0, *edge, place) for place, tree in enumerate(trees) for edge in below[place][tree.root]]
    heapq.heapify(waiting)
    while waiting:
        ready, _, index, place = heapq.heappop(waiting)
        end = visit((place, index), ready)
        for after in below[place].get(trees[place].edges[index].child, ()):
            heapq.heappush(waiting, (end, *after, place))


def _below(tree: Tree) -> dict[int, list[tuple[int, int]]]:
    """The edges that start at each node: (minus the height below, index)."""
    found: dict[int, list[tuple[int, int]]] = {}
    height: dict[int, int] = {}
    for index, edge in reversed(list(enumerate(tree.edges))):
        above = 1 + height.get(edge.child, 0)
        height[edge.parent] = max(height.get(edge.parent, 0), above)
        found.setdefault(edge.parent, []).append((-above, index))
    return found
