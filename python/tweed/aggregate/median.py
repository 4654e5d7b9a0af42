"""The contribution in the middle, number by number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tweed.aggregate.base import Reason
from tweed.aggregate.coordinate_wise import CoordinateWise


@dataclass(frozen=True, slots=True)
class Median(CoordinateWise):
    """Takes, for each value by itself, the contribution in the middle, or the average of the two.

    So a minority of contributions may be anything at all, and the result stays within what the others sent.

    Cost: all contributions in memory; for twenty of them about twice what their sum costs.
    Source: Yin, Chen, Kannan, Bartlett, "Byzantine-robust distributed learning: towards optimal statistical
      rates", 2018, definition 1.
    """

    rule: ClassVar[str] = "median"
    reason: ClassVar[Reason] = Reason.MIDDLE

    def byzantine(self, count: int) -> int:
        """Less than half of the contributions may be anything."""
        return (count - 1) // 2

    def require(self, contributors: int) -> None:
        """Any number will do."""
