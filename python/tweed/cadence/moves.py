"""How much may be withheld, by how far the model moved in the last steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tweed.errors import UsageError


@dataclass(frozen=True, slots=True)
class Moves:
    """Allows an error of the sum over ranks as long as sqrt(share · sum of the last squared moves) / rate.

    Args:
      rate: how far the model moves per unit of the sum of what is exchanged: gradient descent's step on the
        sum of gradients; with averaged gradients the learning rate divided by the ranks; 1 for steps and
        differences.
      share: weight of each of the last moves, 0 or more. 0 allows nothing.
      window: how many of them count, 1 or more.

    Raises: UsageError for other settings.
    Source: the right-hand side of LAG's rules (Chen et al. 2018), with its published settings.
    """

    rate: float
    share: float = 0.1
    window: int = 10

    def __post_init__(self) -> None:
        if not (self.rate > 0 and self.share >= 0 and self.window >= 1):
            raise UsageError(f"{self!r}: rate is above 0, share at least 0, window 1 or more")

    def after(self, moved: tuple[float, ...], norm: float | None) -> tuple[float, ...]:
        """The squared norms of the last moves after one more, of this `norm`.

        Raises: UsageError if nobody measured it: the driver must, for a cadence with `needs_norm`.
        """
        if norm is None:
            raise UsageError("this cadence decides by norms, and was given a step without its norm")
        return (*moved, norm * norm)[-self.window :]

    def allowed(self, moved: tuple[float, ...]) -> float:
        """The norm that the error of the sum may have; 0 before the first move."""
        return math.sqrt(self.share * math.fsum(moved)) / self.rate
