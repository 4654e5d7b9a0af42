"""Ranges of a buffer, one per rank, and what an exchange by ranges costs.

A sum of packets that cannot be added up on their way goes by ranges: each rank owns one, gets from everybody
what
they say about it, adds up, and tells all. A rank sends `(P - 1) / P` of its packet and its share of the
answer
`P - 1` times, however many ranks there are; an all-gather of packets would send the packet `P - 1` times.
"""

from __future__ import annotations

#: Ranges begin at multiples of this many numbers, so that codes of a few bits are never cut within a byte.
GRAIN = 64


def bounds(numel: int, ranks: int) -> list[int]:
    """Where ranges begin, and `numel`: `ranks + 1` numbers that ascend. The last ranges may be empty."""
    blocks = -(-numel // GRAIN)
    return [min(numel, GRAIN * (blocks * rank // ranks)) for rank in range(ranks)] + [numel]
