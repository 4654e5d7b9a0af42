"""What the families of networks share."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from tweed._core import Topology
from tweed.errors import UsageError


@dataclass(frozen=True, slots=True)
class Wire:
    """What one directed link does.

    Attributes:
      bandwidth: bytes per second.
      latency_s: seconds from the first byte's departure to its arrival.
      count: so many equal links lie side by side.
    """

    bandwidth: int
    latency_s: float
    count: int = 1


GIGABIT = Wire(125_000_000, 50e-6)
"""Gigabit Ethernet within a building."""

NVLINK = Wire(25_000_000_000, 1e-6)
"""A second generation NVLink between two GPUs of one machine."""

Cable = Wire | tuple[Wire, Wire]
"""What joins two nodes: the same both ways, or `(there, back)`; with switches, "there" is up."""

Fields = tuple[int, int, int, float, int]
"""A link as `Topology` takes it: from, to, and the three of a wire."""


def both_ways(pairs: Iterable[tuple[int, int]], cable: Cable) -> Iterator[Fields]:
    """A link in each direction between the nodes of every pair."""
    there, back = (cable, cable) if isinstance(cable, Wire) else cable
    for a, b in pairs:
        yield a, b, there.bandwidth, there.latency_s, there.count
        yield b, a, back.bandwidth, back.latency_s, back.count


def port(topology: Topology) -> Wire:
    """What all traffic of one rank shares in a flat network, where `is_complete`."""
    two = topology.without(set(range(2, topology.ranks)), set())
    return Wire(*two.links[0][2:])


def neighbours(topology: Topology) -> defaultdict[int, set[int]]:
    """The nodes that a link joins each node with, whichever way."""
    found: defaultdict[int, set[int]] = defaultdict(set)
    for src, dst, *_ in topology.links:
        found[src].add(dst)
        found[dst].add(src)
    return found


def at_least(least: int, **given: int) -> None:
    """Raises UsageError with the name of the first number that is too small."""
    for name, number in given.items():
        if number < least:
            raise UsageError(f"{name} is {number}; give {least} or more")


@lru_cache(maxsize=2048)
def shortest_paths(topology: Topology, src: int) -> dict[int, tuple[int, ...]]:
    """The nodes between `src` and every node on a path with the fewest links; of equals, the lowest."""
    out = _out(topology)
    found: dict[int, tuple[int, ...]] = {src: ()}
    queue = deque([src])
    while queue:
        node = queue.popleft()
        on = (*found[node], node) if node != src else ()
        for after in out.get(node, ()):
            if after not in found:
                found[after] = on
                queue.append(after)
    return found


@lru_cache(maxsize=64)
def _out(topology: Topology) -> dict[int, list[int]]:
    out = defaultdict(list)
    for a, b, *_ in topology.links:
        out[a].append(b)
    return dict(out)
