"""Times in the unit of the papers: D / b, for D bytes over links of b bytes per second."""

from __future__ import annotations

from typing import Any

from tweed.collective import Schedule, build, topology
from tweed.collective.topology import Topology
from tweed.simulate import run

LONG = 64 << 20


def times(
    name: str,
    network: Topology,
    collective: str = "all_reduce",
    numbytes: int = LONG,
    slice_bytes: int = 1 << 16,
    pieces: int = 1,
) -> float:
    """What a builder's schedule takes in the simulator, chunks cut into slices, 16 of them under way."""
    schedule = build(collective, name, network, pieces)
    seconds = took(schedule, numbytes, network, piece=slice_bytes, window=16)
    return seconds * topology.GIGABIT.bandwidth / numbytes


def took(schedule: Schedule, numbytes: int, network: Topology, **flow: Any) -> float:
    """Seconds in the simulator; it has ended."""
    seconds = run(schedule, numbytes, network, **flow).seconds
    assert seconds is not None
    return seconds
