"""The average of what lies nearest to the trimmed mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tweed.aggregate.base import Reason
from tweed.aggregate.coordinate_wise import CoordinateWise, hostile_of


@dataclass(frozen=True, slots=True)
class Phocas(CoordinateWise):
    """Of each number, averages all contributions but the `f` that are farthest from the trimmed mean.

    Args:
      f: contributions that may be anything: a number, or a share of those that arrive, rounded down; less
        than half of them.

    Raises: UsageError for an `f` that cannot be; in `poll` where too few contribute.
    Cost: all contributions in memory; two to three times what their sum costs.
    Source: Xie, Koyejo, Gupta, "Phocas: dimensional Byzantine-resilient stochastic gradient descent", 2018.
    """

    f: int | float = 0.25

    rule: ClassVar[str] = "phocas"
    reason: ClassVar[Reason] = Reason.NEAR_TRIMMED

    def __post_init__(self) -> None:
        hostile_of(self, self.f, 0)

    def hostile(self, count: int) -> int:
        """`f` of them."""
        return hostile_of(self, self.f, count)
