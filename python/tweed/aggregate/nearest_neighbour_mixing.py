"""Each contribution becomes the average of those nearest to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tweed.aggregate.distance_based import lowest, mean_of, squared_distances
from tweed.aggregate.preprocess import BoundedPreprocess

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class NearestNeighbourMixing(BoundedPreprocess):
    """Replaces each contribution by the average of the `n - f` nearest to it, itself among them.

    Where honest workers have different data, this makes what they send alike, and what a hostile one sends
    mostly honest.

    Args:
      then: the rule that sees the averages.
      f: contributions that may be anything: a number, or a share of those that arrive, rounded down; less
        than half of them.

    Raises: UsageError for arguments that cannot be.
    Cost: beside `then`, inner products, and n^2 multiplications per number.
    Source: Allouah, Farhadkhani, Guerraoui, Gupta, Pinot, Stephan, "Fixing by mixing: a recipe for optimal
      Byzantine ML under heterogeneity", 2023, algorithm 2.
    """

    def shares(self, products: Tensor, batch: int) -> Tensor:
        """Each row equal shares of the nearest."""
        kept = max(1, len(products) - self.byzantine(len(products)))
        distances = squared_distances(products)
        found = products.new_zeros(products.shape)
        for at, row in enumerate(distances):
            found[at] = mean_of(lowest(row, kept), products)
        return found
