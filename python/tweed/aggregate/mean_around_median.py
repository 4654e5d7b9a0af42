"""The average of what lies nearest to the median."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tweed.aggregate.base import Reason
from tweed.aggregate.bounded import Bounded
from tweed.aggregate.coordinate_wise import CoordinateWise


@dataclass(frozen=True, slots=True)
class MeanAroundMedian(Bounded, CoordinateWise):
    """Averages, for each value by itself, all contributions but the `f` that are farthest from the median.

    Args:
      f: contributions that may be anything: a number, or a share of those that arrive, rounded down; less
        than half of them.

    Raises: UsageError for an `f` that cannot be; in `poll` and `attach` where too few contribute.
    Cost: all contributions in memory; for twenty of them some two to three times what their sum costs.
    Source: Xie, Koyejo, Gupta, "Generalized Byzantine-tolerant SGD", 2018 ("mean around median").
    """

    rule: ClassVar[str] = "mean_around_median"
    reason: ClassVar[Reason] = Reason.NEAR_MEDIAN
