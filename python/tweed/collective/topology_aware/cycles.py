"""Orders in which a ring visits the ranks of a network, so that it goes along links.

On a grid the Hamiltonian cycle is written down. Elsewhere it is searched for, and where none is found the
ring always goes on to the nearest rank that is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod

from tweed._core import Topology
from tweed.collective.topology.base import shortest_paths
from tweed.rng import uniform

_TRIES_PER_RANK = 64


@lru_cache(maxsize=64)
def order(topology: Topology) -> tuple[int, ...]:
    """All ranks in the order of a ring: a Hamiltonian cycle if one is found, else as near it as can be.

    A grid without such a cycle is walked row by row, to and fro. Elsewhere the ring goes on to the nearest
    rank that is left; of equals, to the lowest.
    """
    if topology.is_complete:
        return tuple(range(topology.ranks))
    return cycle(topology) or _snake(topology.sides, range(len(topology.sides))) or _nearest(topology)


@lru_cache(maxsize=64)
def cycle(topology: Topology) -> tuple[int, ...]:
    """A Hamiltonian cycle over links that lead both ways; () if none is found.

    On a grid, only if there is none. Elsewhere a path is grown from rank 0, and where it cannot grow, a part
    of it is turned round; wide links are taken first. The search ends after 64 tries per rank.

    Source: the grids are folklore; the search is Posa, "Hamiltonian circuits in random graphs", 1976.
    """
    if topology.is_complete:
        return tuple(range(topology.ranks))
    return _on_grid(topology) if topology.sides else _searched(topology)


def cycle_but_one(topology: Topology) -> tuple[int, ...]:
    """A cycle through every rank but rank 0 of a mesh whose sides are all odd; () on any other network.

    Such a mesh has no Hamiltonian cycle: coloured like a chessboard, it has more fields of rank 0's colour.
    """
    axes = _axes(topology.sides)
    if len(axes) < 2 or any(topology.wraps) or not all(topology.sides[axis] % 2 for axis in axes):
        return ()
    rows = _snake(topology.sides, axes[1:])
    stride = prod(topology.sides[axes[0] + 1 :])
    places = _round_but_corner(topology.sides[axes[0]], len(rows))
    return tuple(row * stride + rows[column] for row, column in places)


def _axes(sides: Sequence[int]) -> list[int]:
    return [axis for axis, side in enumerate(sides) if side > 1]


def _on_grid(topology: Topology) -> tuple[int, ...]:
    """Along one axis as the columns; all others together, walked to and fro, are the rows."""
    sides, axes = topology.sides, _axes(topology.sides)
    if topology.ranks == 2:
        return (0, 1)
    for axis in axes:
        rows = _snake(sides, [other for other in axes if other != axis])
        stride, closes = prod(sides[axis + 1 :]), topology.wraps[axis]
        if (len(rows) > 1 and len(rows) % 2 == 0) or closes:
            return tuple(rows[row] + column * stride for row, column in _round(len(rows), sides[axis]))
        if len(rows) > 1 and sides[axis] % 2 == 0:
            return tuple(rows[row] + column * stride for column, row in _round(sides[axis], len(rows)))
    return ()


def _round(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Row by row, to and fro without column 0, and back along column 0.

    It closes where `rows` is even, or where the last column is linked with column 0.
    """
    for row in range(rows):
        onward = range(1, columns)
        yield from ((row, column) for column in (onward if row % 2 == 0 else reversed(onward)))
    yield from ((row, 0) for row in reversed(range(rows)))


def _round_but_corner(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Round a mesh with odd sides, without its corner (0, 0)."""
    yield 1, 0
    for column in range(1, columns):
        yield from [(1, column), (0, column)][:: 1 if column % 2 else -1]
    for row in range(2, rows):
        onward = range(1, columns)
        yield from ((row, column) for column in (onward if row % 2 else reversed(onward)))
    yield from ((row, 0) for row in reversed(range(2, rows)))


def _snake(sides: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """Every rank of the grid that these axes span, each next to the one before."""
    path: tuple[int, ...] = (0,) if sides else ()
    for axis in reversed(axes):
        stride = prod(sides[axis + 1 :])
        turned = (path, path[::-1])
        path = tuple(rank + at * stride for at in range(sides[axis]) for rank in turned[at % 2])
    return path


def _nearest(topology: Topology) -> tuple[int, ...]:
    """From rank 0 always to the nearest rank that is left."""
    path, left = [0], set(range(1, topology.ranks))
    while left:
        near = shortest_paths(topology, path[-1])
        path.append(min(left, key=lambda rank: (len(near[rank]) if rank in near else topology.nodes, rank)))
        left.remove(path[-1])
    return tuple(path)


def _searched(topology: Topology) -> tuple[int, ...]:
    """Grows a path from rank 0; where its end has no new neighbour, turns a part of it round."""
    near = _neighbours(topology)
    path, inside = [0], {0}
    for attempt in range(_TRIES_PER_RANK * topology.ranks):
        here = near[path[-1]]
        fresh = [
            (slow, len(near[rank].keys() - inside), rank) for rank, slow in here.items() if rank not in inside
        ]
        if fresh:
            path.append(min(fresh)[-1])
            inside.add(path[-1])
            continue
        if len(path) == topology.ranks and path[0] in here:
            return tuple(path)
        pivots = sorted(here)
        pivot = path.index(pivots[int(uniform(0, attempt) * len(pivots))]) if pivots else 0
        path[pivot + 1 :] = reversed(path[pivot + 1 :])
    return ()


def _neighbours(topology: Topology) -> list[dict[int, tuple[int, float]]]:
    """For each rank, those that it has links with in both directions; the wider and shorter a link, the
    smaller its value."""
    near: list[dict[int, tuple[int, float]]] = [{} for _ in range(topology.ranks)]
    for a, b, bandwidth, latency_s, count in topology.links:
        if max(a, b) < topology.ranks and topology.has_link(b, a):
            near[a][b] = (-bandwidth * count, latency_s)
    return near
