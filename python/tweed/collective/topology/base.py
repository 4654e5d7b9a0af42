"""What the families of networks share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


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

Fields = tuple[int, int, int, float, int]
"""A link as `Topology` takes it: from, to, and the three of a wire."""


def both_ways(pairs: Iterable[tuple[int, int]], wire: Wire) -> Iterator[Fields]:
    """A link in each direction between the nodes of every pair."""
    for a, b in pairs:
        yield a, b, wire.bandwidth, wire.latency_s, wire.count
        yield b, a, wire.bandwidth, wire.latency_s, wire.count
