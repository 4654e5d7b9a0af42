"""Time-expanded: every chunk spreads greedily over whatever link is idle, on uneven links too.

Source: Won et al., "TACOS: Topology-Aware Collective Algorithm Synthesizer for Distributed Machine Learning",
MICRO 2024, section IV. What differs here is written where the search is:
crates/schedule/src/builders/time_expanded.
"""

from __future__ import annotations

from tweed._core import Schedule, Topology
from tweed._core import time_expanded as _build
from tweed.collective.builder import Builder, over_links

CHUNK = 1 << 20
"""Bytes of a chunk for which `time_expanded` sets the links' latency against their bandwidth."""

SHORT = 1 << 10
"""Those of `time_expanded_latency`."""

_MOST_TRIES = 20
_MOST_LOOKS = 8_000_000


def search(
    collective: str,
    topology: Topology,
    *,
    pieces: int = 1,
    chunk: int = CHUNK,
    seed: int = 0,
    tries: int = _MOST_TRIES,
) -> tuple[Schedule, float]:
    """A checked schedule, and the seconds that it takes if every chunk has `chunk` bytes.

    Args:
      collective: all_gather, reduce_scatter (an all-gather on the reversed links, backwards) or all_reduce
        (one after the other).
      topology: links may be uneven, by direction too; switches are crossed without a stop.
      pieces: chunks of every rank.
      chunk: bytes of one; on even links it hardly matters.
      seed: the first of so many `tries`, of which the best is kept. The same seed gives the same schedule.

    Raises: UsageError if some rank cannot be reached from another.

    Cost: per try, about 2 microseconds for each of `pieces * ranks * (ranks - 1)` transfers, and 50 where
      500 ranks lie behind switches. It stops early once no more than a thousandth can be gained.
    """
    return _build(collective, topology, (pieces, chunk, seed, tries))


def _row(name: str, chunk: int, pieces: tuple[int, ...]) -> Builder:
    def make(collective: str, topology: Topology, pieces: int) -> Schedule:
        # Behind a switch it looks at every node before it moves a chunk, else at one.
        looks = 1 if topology.nodes == topology.ranks else 1 + topology.nodes // 8
        tries = max(1, min(_MOST_TRIES, _MOST_LOOKS // (pieces * topology.ranks**2 * looks)))
        return search(collective, topology, pieces=pieces, chunk=chunk, tries=tries)[0]

    return Builder(name, make, over_links, pieces)


time_expanded = _row("time_expanded", CHUNK, pieces=(1, 2, 4))
time_expanded_latency = _row("time_expanded_latency", SHORT, pieces=(1,))
