"""Time-expanded: every chunk spreads greedily over whatever link is idle, on uneven links too.

Source: Won et al., "TACOS: Topology-Aware Collective Algorithm Synthesizer for Distributed Machine Learning",
MICRO 2024, section IV. The search itself is Rust: crates/schedule/src/builders/time_expanded.
"""

from __future__ import annotations

from tweed._core import Schedule, Topology
from tweed._core import time_expanded as _build
from tweed.collective.fitted.base import Fitted

CHUNK = 1 << 20
"""Bytes of a chunk for which it weighs the links' latency against their bandwidth."""

_MOST_TRIES = 20
_MOST_MOVES = 4_000_000


def _make(collective: str, topology: Topology, pieces: int) -> Schedule:
    moves = pieces * topology.ranks**2
    tries = max(1, min(_MOST_TRIES, _MOST_MOVES // moves))
    schedule, _ = _build(collective, topology, (pieces, CHUNK, 0, tries))
    return schedule


def _refuses(topology: Topology) -> str:
    return "it sends over links, and all ranks share one core" if topology.is_complete else ""


time_expanded = Fitted(
    "time_expanded", ("all_reduce", "all_gather", "reduce_scatter"), _make, _refuses, pieces=(1, 2, 4)
)
