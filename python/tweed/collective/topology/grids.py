"""Direct networks on a grid: line, ring, mesh, torus, hypercube; and where ranks are along its axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import prod

from tweed._core import Topology
from tweed.collective.topology.base import GIGABIT, Wire, both_ways
from tweed.errors import UsageError


def line(ranks: int, wire: Wire = GIGABIT) -> Topology:
    """Each rank is linked with the next."""
    return _grid("line", [ranks], wrap=False, wire=wire)


def ring(ranks: int, wire: Wire = GIGABIT) -> Topology:
    """Each rank is linked with the next, and the last with the first."""
    return _grid("ring", [ranks], wrap=True, wire=wire)


def mesh(*sides: int, wire: Wire = GIGABIT) -> Topology:
    """Neighbours along every dimension are linked."""
    return _grid("mesh", sides, wrap=False, wire=wire)


def torus(*sides: int, wire: Wire = GIGABIT) -> Topology:
    """A mesh whose ends are linked too. Along a side of 2 that is the same link, and there is one."""
    return _grid("torus", sides, wrap=True, wire=wire)


def hypercube(dimensions: int, wire: Wire = GIGABIT) -> Topology:
    """Ranks whose numbers differ in one bit are linked."""
    return _grid("hypercube", (2,) * dimensions, wrap=False, wire=wire)


def _grid(kind: str, sides: Sequence[int], wrap: bool, wire: Wire) -> Topology:
    if not sides or min(sides) < 1 or prod(sides) < 2:
        raise UsageError(f"a {kind} with sides {list(sides)} has no two ranks; give sides such as 4, 4")
    wraps = [wrap and side > 2 for side in sides]
    text = f"{kind} {'x'.join(str(side) for side in sides)}"
    links = list(both_ways(_neighbours(sides, wraps), wire))
    return Topology(prod(sides), links, name=text, sides=list(sides), wraps=wraps)


def _neighbours(sides: Sequence[int], wraps: Sequence[bool]) -> Iterator[tuple[int, int]]:
    strides = [prod(sides[axis + 1 :]) for axis in range(len(sides))]
    for place in product(*(range(side) for side in sides)):
        rank = sum(at * stride for at, stride in zip(place, strides, strict=True))
        for at, side, stride, around in zip(place, sides, strides, wraps, strict=True):
            if at + 1 < side:
                yield rank, rank + stride
            elif around:
                yield rank - (side - 1) * stride, rank


def axes(topology: Topology) -> tuple[int, ...]:
    """The axes along which a grid has more than one rank; () where the network is no grid."""
    return tuple(axis for axis, side in enumerate(topology.sides) if side > 1)


def stride(topology: Topology, axis: int) -> int:
    """The difference between the numbers of neighbours along an axis."""
    return prod(topology.sides[axis + 1 :])


def place(topology: Topology, rank: int, axis: int) -> int:
    """Where along an axis a rank is, from 0."""
    return rank // stride(topology, axis) % topology.sides[axis]


def moved(topology: Topology, rank: int, axis: int, to: int) -> int:
    """The rank on the same line along an axis, at place `to`; places beyond the end count from the start."""
    side = topology.sides[axis]
    return rank + (to % side - place(topology, rank, axis)) * stride(topology, axis)


def between(topology: Topology, src: int, dst: int, axis: int, sign: int) -> tuple[int, ...]:
    """The ranks from `src` to `dst` along an axis, both left out, upwards (`sign` 1) or downwards (-1)."""
    at, end, side = place(topology, src, axis), place(topology, dst, axis), topology.sides[axis]
    return tuple(moved(topology, src, axis, at + sign * hop) for hop in range(1, (end - at) * sign % side))


@lru_cache(maxsize=256)
def refuses(topology: Topology) -> str:
    """Why this is no grid with all its links; "" if it is one."""
    if not axes(topology):
        return "it needs a grid, and the network is not declared to be one (`sides`)"
    for axis in axes(topology):
        last = topology.sides[axis] - 1
        for rank in range(topology.ranks):
            at = place(topology, rank, axis)
            if at == last and not topology.wraps[axis]:
                continue
            other = moved(topology, rank, axis, at + 1)
            if not (topology.has_link(rank, other) and topology.has_link(other, rank)):
                return (
                    f"it needs every link of the grid, and ranks {rank} and {other} are not linked both ways"
                )
    return ""
