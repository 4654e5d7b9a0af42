"""The point from which all contributions are least far away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tweed.aggregate.base import Reason
from tweed.aggregate.distance_based import DistanceBased, distances_to
from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class GeometricMedian(DistanceBased):
    """The point with the least sum of distances to all contributions, by the smoothed Weiszfeld algorithm.

    A minority of contributions may be anything.

    Args:
      smoothing: distances below count as this, so that a contribution at the centre gets no infinite weight.
        None: a millionth of the median distance.
      iterations: from zero on. Each goes over inner products only, and costs next to nothing.

    Raises: UsageError for arguments that cannot be.
    Source: Pillutla, Kakade, Harchaoui, "Robust aggregation for federated learning", 2022, algorithm 2.
    """

    smoothing: float | None = None
    iterations: int = 32
    reason: ClassVar[Reason] = Reason.BY_DISTANCE

    def __post_init__(self) -> None:
        if not ((self.smoothing is None or self.smoothing > 0) and self.iterations >= 1):
            raise UsageError(f"{self!r}: smoothing is to be above 0, iterations at least 1")

    def weights(self, products: Tensor, byzantine: int) -> Tensor:
        """In the end one over the distance to the median, as shares of all."""
        return geometric_median(products, self.smoothing, self.iterations)


def geometric_median(products: Tensor, smoothing: float | None = None, iterations: int = 32) -> Tensor:
    """The weights, `[n]`, of vectors with these inner products, whose sum is their geometric median."""
    weights = products.new_zeros(len(products))
    for _ in range(iterations):
        distances = distances_to(weights, products)
        least = 1e-6 * float(distances.quantile(0.5)) if smoothing is None else smoothing
        weights = 1 / distances.clamp_(min=max(least, 1e-150))
        weights /= weights.sum()
    return weights
