"""A mean in which contributions count less only where they come later than workers are many."""

from __future__ import annotations

from dataclasses import dataclass

from tweed.aggregate.weighted import Averaged
from tweed.errors import UsageError


@dataclass(frozen=True, slots=True)
class DelayAdaptive(Averaged):
    """As `Weighted`, but a contribution counts in full up to a delay of `most`, and `most / delay` beyond it.

    So a single straggler does not force a low learning rate on all: convergence depends on how many compute
    at once, not on the longest delay.

    Args:
      samples: whether contributions count by their samples, which are believed; otherwise alike.
      most: updates; about as many as there are workers that compute at once.

    Raises: UsageError for less than 1.
    Cost: as `Weighted`.
    Source: Mishchenko, Bach, Even, Woodworth, "Asynchronous SGD beats minibatch SGD under arbitrary delays",
      2022, section 3.

    Example:
      >>> DelayAdaptive(most=10).discount(40)
      0.25
    """

    samples: bool = True
    most: int = 10

    def __post_init__(self) -> None:
        if self.most < 1:
            raise UsageError(f"{self!r}: most is to be at least 1")

    def discount(self, delay: int) -> float:
        return min(1.0, self.most / max(1, delay))
