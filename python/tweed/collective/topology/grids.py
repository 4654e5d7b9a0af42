"""Direct networks on a grid: line, ring, mesh, torus, hypercube."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
