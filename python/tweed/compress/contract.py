"""What a memory asks of the compressor that it feeds its own rest."""

from __future__ import annotations

from tweed.compress.base import Method, Spec
from tweed.errors import StrategyError

_BUFFER = Spec(((2**20,),))


def check_contracts(memory: str, compressor: Method) -> None:
    """Raises StrategyError if what `compressor` leaves is more than it was given: a memory that gives it back
    would grow without end."""
    if compressor.unbiased and compressor.error_bound(_BUFFER) >= 1:
        raise StrategyError(
            f"{memory} does not go with {compressor!r}: chance leaves more than it was given, and what is "
            "left would grow from exchange to exchange. Take it without chance (rounded to nearest, not "
            "scaled), or without a memory: Direct"
        )
