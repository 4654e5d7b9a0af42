"""Three trees on a mesh: each sums a third of the buffer up to its root and spreads it down again.

One tree has all rows, one has all columns, and the third has what they leave; no link is in more than two
of them. A tree uses a link upwards for sums and downwards for results, so a long all-reduce whose pieces
follow each other takes two thirds of the time in which one link carries the buffer. Links keep to the order
of the steps, or all sums would go before the first result.

Source: Laskar et al., "Enhancing Collective Communication in MCM Accelerators for Deep Learning Training"
(TTO), HPCA 2024. Its trees start from corners and one leaves out the fourth; that these leave out none and
are half as high is our own design.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tweed._core import Schedule, Topology
from tweed.collective.builder import Builder
from tweed.collective.topology import grids
from tweed.collective.topology_aware.trees import Edge, Tree, schedule_of

Pair = tuple[int, int]


def grow(topology: Topology) -> list[Tree]:
    """The trees: of all rows, of all columns, and of what they leave; roots are near the middle."""
    rows, columns = (topology.sides[axis] for axis in grids.axes(topology))
    lefts = (first + at for first in range(0, rows * columns, columns) for at in range(columns - 1))
    across = [(rank, rank + 1) for rank in lefts]
    down = [(rank, rank + columns) for rank in range((rows - 1) * columns)]
    row, column = rows // 2, columns // 2
    joints_of_columns = across[row * (columns - 1) :][: columns - 1]
    # One joint is aside, or the rank in the middle would keep no link for the third tree.
    joints_of_rows = [down[at * columns + column + (at == row)] for at in range(rows - 1)]
    left = set(across + down).difference(joints_of_columns, joints_of_rows)
    middle = row * columns + column
    full = [_tree(middle, across + joints_of_rows), _tree(middle, down + joints_of_columns)]
    return [*full, _flattest(left, topology.ranks)]


def _flattest(pairs: Iterable[Pair], ranks: int) -> Tree:
    """The tree of the least height that these links hold."""
    links = sorted(pairs)
    return min((_tree(root, links) for root in range(ranks)), key=lambda tree: tree.edges[-1].step)


def _tree(root: int, pairs: Iterable[Pair]) -> Tree:
    """Every rank by a path with the fewest links."""
    near: dict[int, list[int]] = {}
    for a, b in pairs:
        near.setdefault(a, []).append(b)
        near.setdefault(b, []).append(a)
    steps, edges, queue = {root: 0}, [], deque([root])
    while queue:
        parent = queue.popleft()
        for child in near[parent]:
            if child not in steps:
                edges.append(Edge(parent, child, steps[parent]))
                steps[child] = steps[parent] + 1
                queue.append(child)
    return Tree(root, tuple(edges))


def _make(collective: str, topology: Topology, pieces: int) -> Schedule:
    return schedule_of(grow(topology), "three_tree", collective, topology, pieces=pieces, ordered=True)


def _refuses(topology: Topology) -> str:
    sides = [topology.sides[axis] for axis in grids.axes(topology)]
    if len(sides) != 2 or min(sides) < 3 or any(topology.wraps):
        return "it needs a mesh with two dimensions of at least three ranks; no three such trees fit another"
    return grids.refuses(topology)


three_tree = Builder("three_tree", _make, _refuses, pieces=(1, 16, 64))
