"""The contribution whose neighbours are nearest, or the mean of the best so many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tweed.aggregate.base import Reason
from tweed.aggregate.distance_based import BoundedDistanceBased, lowest, mean_of, squared_distances

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Krum(BoundedDistanceBased):
    """Takes one contribution: that with the least sum of squared distances to its nearest `n - f`, itself
    among them.

    Args:
      f: contributions that may be anything: a number, or a share of those that arrive, rounded down; less
        than half of them.

    Raises: UsageError for an `f` that cannot be; in `poll` and `attach` where too few contribute.
    Source: Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine learning with adversaries: Byzantine tolerant
      gradient descent", 2017, which counts one neighbour less and asks for 2 f + 3 contributions; here as in
      Allouah et al., "Fixing by mixing", 2023, which holds from 2 f + 1 on.
    """

    reason: ClassVar[Reason] = Reason.NEAREST

    def scores(self, products: Tensor, byzantine: int) -> Tensor:
        return krum_scores(products, byzantine)

    def weights(self, products: Tensor, byzantine: int) -> Tensor:
        """One for the best."""
        return mean_of(lowest(krum_scores(products, byzantine), 1), products)


@dataclass(frozen=True, slots=True)
class MultiKrum(BoundedDistanceBased):
    """Averages all but the `f` contributions with the largest sums of squared distances to their nearest
    `n - f`.

    Args:
      f: contributions that may be anything: a number, or a share of those that arrive, rounded down; less
        than half of them.

    Raises: UsageError for an `f` that cannot be; in `poll` and `attach` where too few contribute.
    Source: as `Krum`; section 4 there, with `m = n - f`.
    """

    reason: ClassVar[Reason] = Reason.NEAREST

    def scores(self, products: Tensor, byzantine: int) -> Tensor:
        return krum_scores(products, byzantine)

    def weights(self, products: Tensor, byzantine: int) -> Tensor:
        """Equal ones for the best."""
        scores = krum_scores(products, byzantine)
        return mean_of(lowest(scores, len(scores) - byzantine), products)


def krum_scores(products: Tensor, byzantine: int) -> Tensor:
    """`[n]`: each one's sum of squared distances to its nearest `n - byzantine`, itself among them."""
    nearest = squared_distances(products).sort(dim=1).values[:, : len(products) - byzantine]
    return nearest.sum(dim=1)
