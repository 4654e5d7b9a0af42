"""Slow ranks, drawn by a seed."""

from __future__ import annotations

from tweed.errors import UsageError
from tweed.rng import uniform


def stragglers(ranks: int, *, share: float, factor: float, seed: int) -> dict[int, float]:
    """Each rank is slow with probability `share`, and takes up to `factor` times as long, all equally likely.

    For the condition `slow` of `tweed.simulate.run`.

    Raises: UsageError if `share` is no probability or `factor` is below 1.
    """
    if not 0 <= share <= 1 or factor < 1:
        raise UsageError(f"share {share} must be from 0 to 1, and factor {factor} at least 1")
    slow = (rank for rank in range(ranks) if uniform(seed, rank, 0) < share)
    return {rank: 1 + (factor - 1) * uniform(seed, rank, 1) for rank in slow}
