"""What builders for grids share: places, steps along an axis, and refusals."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from tweed._core import Topology


def axes(topology: Topology) -> tuple[int, ...]:
    """The axes along which a grid has more than one rank; () where the network is no grid."""
    return tuple(axis for axis, side in enumerate(topology.sides) if side > 1)


def stride(topology: Topology, axis: int) -> int:
    """By how much the numbers of neighbours along an axis differ."""
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
