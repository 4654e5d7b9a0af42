"""The average of those that are not unusually far away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tweed.aggregate.base import Reason
from tweed.aggregate.distance_based import DistanceBased, distances_to, mean_of
from tweed.aggregate.geometric_median import geometric_median
from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

#: What the median distance from the median is to the standard deviation of a normal distribution.
_MAD = 1.4826


@dataclass(frozen=True, slots=True)
class ThreeSigma(DistanceBased):
    """Leaves out contributions whose distance from the geometric median is more than so many standard
    deviations above the usual one, and averages the others.

    The usual distance is the median of all, and the deviation that of a normal distribution with the same
    median deviation: hostile contributions, being fewer than half, cannot widen it at will.

    Args:
      deviations: how many.

    Raises: UsageError for a number that cannot be.
    Source: Han et al., "FedSecurity", 2023 (a defence of FedML), where mean and standard deviation of all
      distances are taken: a third of hostile contributions widens these so far that none is left out.
    """

    deviations: float = 3.0
    reason: ClassVar[Reason] = Reason.NEAR_OTHERS

    def __post_init__(self) -> None:
        if not self.deviations > 0:
            raise UsageError(f"{self!r}: deviations are to be above 0")

    def scores(self, products: Tensor, byzantine: int) -> Tensor:
        """Distances from the geometric median."""
        return distances_to(geometric_median(products), products)

    def weights(self, products: Tensor, byzantine: int) -> Tensor:
        """Equal ones for those within reach."""
        distances = self.scores(products, byzantine)
        usual = distances.quantile(0.5)
        deviation = _MAD * (distances - usual).abs().quantile(0.5)
        # what rounding makes of equal distances is no deviation
        within = distances <= usual * (1 + 1e-6) + self.deviations * deviation
        return mean_of(within.nonzero().flatten().tolist(), products)
