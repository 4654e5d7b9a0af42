"""Packing: so many spanning trees from given roots, that together use each link no more often than they may.

Sources: Edmonds, "Edge-disjoint branchings", 1973, has when they exist: every set of nodes has at least as
many links in as there are trees with their root outside. Lovász, "On two minimax theorems in graph theory",
1976, grows them link by link; what a tree may take without harm to the others is one max-flow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from tweed.collective.flows import Capacities

Link = tuple[int, int]
Branching = tuple[int, list[Link]]
"""A root, and links from parent to child, each after the one that reaches its parent."""

_TOGETHER = 64
"""So many trees grow side by side, so that none has to take what the others left. More take longer."""

_ALL = 1 << 24


def pack(links: Capacities, ranks: int, roots: Sequence[int]) -> list[Branching]:
    """A spanning tree from each of `roots`, in that order; together they use each link at most `links` times.

    Trees grow breadth first where they can, so that they stay low.

    Raises:
      ValueError: there are no such trees.

    Cost: a max-flow for each link of each tree: 1 s for 64 trees of 64 ranks.
    """
    free, trees = dict(links), []
    for start in range(0, len(roots), _TOGETHER):
        together = roots[start : start + _TOGETHER]
        trees.extend(_Grove(free, ranks, together, roots[start + _TOGETHER :]).grown())
    return trees


class _Grove:
    """Trees that grow side by side, one link each in turn, over what is free of the links.

    The flow runs from a source, over a node for each tree that is not done, to all that the tree has reached;
    trees that have not begun are supply of their roots.
    """

    def __init__(self, free: Capacities, ranks: int, roots: Sequence[int], later: Sequence[int]) -> None:
        self._free = free
        self._ranks = ranks
        self._roots = roots
        self._depths = [{root: 0} for root in roots]
        self._links: list[list[Link]] = [[] for _ in roots]
        self._refused: list[set[Link]] = [set() for _ in roots]
        self._out = _ends(free)
        self._undone = len(roots) + len(later)
        self._source = ranks + len(roots)
        self._flows = _Flows(self._capacities(later))

    def _capacities(self, later: Sequence[int]) -> Capacities:
        trees = range(self._ranks, self._source)
        reached = {(tree, rank): 0 for tree in trees for rank in range(self._ranks)}
        begun = dict.fromkeys(zip(trees, self._roots, strict=True), _ALL)
        supply = {(self._source, node): 0 for node in range(self._ranks)}
        for root in later:
            supply[self._source, root] += 1
        undone = dict.fromkeys(((self._source, tree) for tree in trees), 1)
        return {**self._free, **reached, **begun, **supply, **undone}

    def grown(self) -> list[Branching]:
        """All of them, done."""
        growing = list(range(len(self._roots)))
        while growing:
            for tree in growing:
                self._grow(tree)
            growing = [tree for tree in growing if len(self._depths[tree]) < self._ranks]
        return list(zip(self._roots, self._links, strict=True))

    def _grow(self, tree: int) -> None:
        """Adds a link: of those that start at the least depth, the one with most room."""
        self._flows[self._source, self._ranks + tree] = 0
        depths = self._depths[tree]
        parent, child = self._next(tree)
        self._free[parent, child] -= 1
        self._flows[parent, child] = self._free[parent, child]
        depths[child] = depths[parent] + 1
        self._links[tree].append((parent, child))
        if len(depths) == self._ranks:
            self._undone -= 1
        else:
            self._flows[self._ranks + tree, child] = _ALL
            self._flows[self._source, self._ranks + tree] = 1

    def _next(self, tree: int) -> Link:
        for _, _, parent, child in sorted(self._reachable(tree)):
            if self._harmless(parent, child):
                return parent, child
            self._refused[tree].add((parent, child))
        raise ValueError(f"the links do not hold {len(self._refused)} trees")

    def _reachable(self, tree: int) -> list[tuple[int, int, int, int]]:
        depths, refused, free = self._depths[tree], self._refused[tree], self._free
        links = ((parent, child) for parent in depths for child in self._out.get(parent, ()))
        return [
            (depths[parent], -free[parent, child], parent, child)
            for parent, child in links
            if child not in depths and free[parent, child] and (parent, child) not in refused
        ]

    def _harmless(self, parent: int, child: int) -> bool:
        """Can all other trees that are not done still reach every rank without one unit of this link?

        Sets that this tree has not reached lose nothing, as it reaches them so; of the others, those with the
        child but not the parent must have a link in to spare.
        """
        supply = (self._source, parent)
        before = self._flows[supply]
        self._flows[supply] = _ALL
        value = self._flows.largest(self._source, child)
        self._flows[supply] = before
        return value >= self._undone


class _Flows:
    """Max-flows over capacities that change, between nodes that do not."""

    def __init__(self, capacities: Mapping[Link, int]) -> None:
        import numpy as np
        from scipy.sparse import csr_array

        links = sorted(capacities)
        self._place = {link: place for place, link in enumerate(links)}
        nodes = 1 + max(chain.from_iterable(links))
        ends = np.array(links, dtype=np.int32).T
        marks = np.ones(len(links), dtype=np.int32)
        self._graph = csr_array((marks, (ends[0], ends[1])), shape=(nodes, nodes))
        self._graph.data[:] = [capacities[link] for link in links]

    def __getitem__(self, link: Link) -> int:
        return int(self._graph.data[self._place[link]])

    def __setitem__(self, link: Link, capacity: int) -> None:
        self._graph.data[self._place[link]] = capacity

    def largest(self, source: int, sink: int) -> int:
        from scipy.sparse.csgraph import maximum_flow

        return int(maximum_flow(self._graph, source, sink).flow_value)


def _ends(links: Mapping[Link, int]) -> dict[int, list[int]]:
    ends: dict[int, list[int]] = {}
    for start, end in links:
        ends.setdefault(start, []).append(end)
    return ends
