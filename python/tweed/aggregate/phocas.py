"""The average of what lies nearest to the trimmed mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tweed.aggregate.base import Reason
from tweed.aggregate.bounded import Bounded
from tweed.aggregate.coordinate_wise import CoordinateWise


@dataclass(frozen=True, slots=True)
class Phocas(Bounded, CoordinateWise):
    """Averages, for each value by itself, all contributions but the `f` that are farthest from the trimmed
    mean.

    Args:
      f: contributions that may be anything: a number, or a share of those that arrive, rounded down; less
        than half of them.

    Raises: UsageError for an `f` that cannot be; in `poll` and `attach` where too few contribute.
    Cost: all contributions in memory; for twenty of them some two to three times what their sum costs.
    Source: Xie, Koyejo, Gupta, "Phocas: dimensional Byzantine-resilient stochastic gradient descent", 2018.
    """

    rule: ClassVar[str] = "phocas"
    reason: ClassVar[Reason] = Reason.NEAR_TRIMMED
