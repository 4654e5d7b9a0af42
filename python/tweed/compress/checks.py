"""Checks of settings that several codecs and memories share."""

from __future__ import annotations

from tweed.compress.base import Codec, Spec
from tweed.errors import StrategyError, UsageError

_BUFFER = Spec(((2**20,),))


def check_contracts(memory: str, compressor: Codec) -> None:
    """Raises StrategyError if what `compressor` leaves is more than it was given: a memory that gives it back
    would grow without end."""
    if compressor.unbiased and compressor.error_bound(_BUFFER) >= 1:
        raise StrategyError(
            f"{memory} does not go with {compressor!r}: its random draws leave more than it was given, and "
            "what is left would grow from exchange to exchange. Take it without draws (rounded to nearest, "
            "not scaled), or without a memory: Direct"
        )


def check_density(who: str, density: float) -> None:
    """Raises UsageError unless `density` is a share of values."""
    if not 0 < density <= 1:
        raise UsageError(f"{who}: density={density!r} is no share of values; give one above 0, at most 1")


def count_of(density: float, numel: int) -> int:
    """How many of `numel` values that is: at least one, if there are any."""
    return min(numel, max(1, round(density * numel)))
