"""Bucket: rings along one dimension of a grid after the other, starting with every dimension at once.

What a rank has gathered along one dimension goes on along the next, so no byte crosses a link twice. Each
share of the buffer is cut by the dimension that comes first and by direction; together they keep every link
of a torus busy, and a long all-reduce takes the time of the link bound, `2 (N - 1) / E`. On a mesh, the links
near the ends are idle while sums are taken where they are busy while values spread, so there both phases
overlap, piece by piece, and come near the same bound.

Source: Jain and Sabharwal, "Optimal Bucket Algorithms for Large MPI Collectives on Torus Interconnects",
ICS 2010; Sack and Gropp, "Collective Algorithms for Multiported Torus Networks", 2015. Uneven sides are our
own design.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tweed._core import Schedule, Topology
from tweed.collective.builder import Builder
from tweed.collective.topology import grids
from tweed.collective.topology_aware.trees import Edge, Tree, schedule_of

_MOST_OF_A_KIND = 3


def grow(topology: Topology) -> list[Tree]:
    """Trees from every rank, in root order; of each kind so many that dimensions carry alike."""
    signs = (1, -1) if any(topology.wraps) else (1,)
    kinds = [
        (axes, sign)
        for axes, count in zip(_turns(topology), counts(topology), strict=True)
        for sign in signs
        for _ in range(count)
    ]
    return [_tree(topology, root, axes, sign) for root in range(topology.ranks) for axes, sign in kinds]


def counts(topology: Topology) -> tuple[int, ...]:
    """How many trees start with each dimension: the busiest carries least, and they are few if it can be."""
    turns = _turns(topology)
    loads = [_loads(topology, axes) for axes in turns]

    def busiest(count: tuple[int, ...]) -> tuple[float, int]:
        carried = [sum(n * load[axis] for n, load in zip(count, loads, strict=True)) for axis in turns[0]]
        return max(carried) / sum(count), sum(count)

    return min(product(range(1, _MOST_OF_A_KIND + 1), repeat=len(turns)), key=busiest)


def _turns(topology: Topology) -> list[tuple[int, ...]]:
    axes = grids.axes(topology)
    return [axes[first:] + axes[:first] for first in range(len(axes))]


def _loads(topology: Topology, axes: tuple[int, ...]) -> dict[int, float]:
    """How many trees the busiest link along each axis is in, where every rank is root of one with this order.

    On a torus each direction is used by half the trees, a line is used in both directions by all.
    """
    loads, inside = {}, 1
    for axis in axes:
        loads[axis] = inside * (topology.sides[axis] - 1) / (2 if topology.wraps[axis] else 1)
        inside *= topology.sides[axis]
    return loads


def _tree(topology: Topology, root: int, axes: tuple[int, ...], sign: int) -> Tree:
    members, edges, step = [root], list[Edge](), 0
    for axis in axes:
        grown = [
            Edge(a, b, step + hop) for rank in members for hop, a, b in _along(topology, rank, axis, sign)
        ]
        members += [edge.child for edge in grown]
        edges += grown
        step += topology.sides[axis] - 1
    return Tree(root, tuple(edges))


def _along(topology: Topology, rank: int, axis: int, sign: int) -> Iterator[tuple[int, int, int]]:
    """Hops from a rank over its line: round it, or to both ends."""
    at, side = grids.place(topology, rank, axis), topology.sides[axis]
    signs = [(sign, side - 1)] if topology.wraps[axis] else [(1, side - 1 - at), (-1, at)]
    for turn, hops in signs:
        line = [grids.moved(topology, rank, axis, at + turn * hop) for hop in range(hops + 1)]
        yield from ((hop, line[hop], line[hop + 1]) for hop in range(hops))


def _make(collective: str, topology: Topology, pieces: int) -> Schedule:
    mesh = not any(topology.wraps)
    height = sum(side - 1 for side in topology.sides)
    return schedule_of(
        grow(topology), "bucket", collective, topology, pieces=pieces, stride=height, ordered=mesh
    )


bucket = Builder("bucket", _make, grids.refuses, pieces=(1, 8))
