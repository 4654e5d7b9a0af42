"""The average of what is left without the largest and the smallest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tweed.aggregate.base import Reason
from tweed.aggregate.bounded import Bounded
from tweed.aggregate.coordinate_wise import CoordinateWise


@dataclass(frozen=True, slots=True)
class TrimmedMean(Bounded, CoordinateWise):
    """Leaves out, for each value by itself, the `f` largest and the `f` smallest contributions, and averages
    the others.

    So `f` contributions may be anything at all, and the result stays within what the others sent.

    Args:
      f: contributions that may be anything: a number, or a share of those that arrive, rounded down; less
        than half of them.

    Raises: UsageError for an `f` that cannot be; in `poll` and `attach` where too few contribute.
    Cost: all contributions in memory; for twenty of them some two to three times what their sum costs.
    Source: Yin, Chen, Kannan, Bartlett, "Byzantine-robust distributed learning: towards optimal statistical
      rates", 2018, definition 2.
    """

    rule: ClassVar[str] = "trimmed_mean"
    reason: ClassVar[Reason] = Reason.TRIMMED
