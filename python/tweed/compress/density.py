"""Shares of numbers: the same words and the same rounding for all who are told one."""

from __future__ import annotations

from tweed.errors import UsageError


def check_density(who: str, density: float) -> None:
    """Raises UsageError unless `density` is a share of numbers."""
    if not 0 < density <= 1:
        raise UsageError(f"{who}: density={density!r} is no share of numbers; give one above 0, at most 1")


def count_of(density: float, numel: int) -> int:
    """How many of `numel` numbers that is: at least one, if there are any."""
    return min(numel, max(1, round(density * numel)))
