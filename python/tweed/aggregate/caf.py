"""The mean, with less and less weight for those that stretch the covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tweed.aggregate.base import Reason
from tweed.aggregate.distance_based import BoundedDistanceBased

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class CAF(BoundedDistanceBased):
    """Takes weight from contributions by how far they lie from the mean along the direction of largest
    variance, again and again; of all means on the way, that with the smallest largest variance counts.

    Args:
      f: contributions that may be anything: a number, or a share of those that arrive, rounded down; less
        than half of them.

    Raises: UsageError for an `f` that cannot be; in `poll` and `attach` where too few contribute.
    Cost: at most n eigenvectors of an `[n, n]` matrix: each time one contribution loses all of its weight.
    Source: Allouah, Guerraoui, Stephan, "Towards trustworthy federated learning with untrusted participants",
      2025, where it is called covariance-bound agnostic filter.
    """

    reason: ClassVar[Reason] = Reason.BY_DISTANCE

    def weights(self, products: Tensor, byzantine: int) -> Tensor:
        """The weights of the mean around which contributions vary least."""
        counts = products.new_ones(len(products))
        best, least = counts / len(counts), float("inf")
        while (total := float(counts.sum())) > len(counts) - 2 * byzantine:
            mean = counts / total
            variance, distances = _widest(products, mean)
            if variance < least:
                best, least = mean, variance
            farthest = distances[counts > 0].max()
            if farthest <= 0:
                break  # all that count are alike
            counts = (counts * (1 - distances / farthest)).clamp_(min=0)
        return best


def _widest(products: Tensor, mean: Tensor) -> tuple[float, Tensor]:
    """The largest variance in any direction of vectors that count as in `mean`; and squared distances from
    the mean in that direction, `[n]`."""
    import torch

    reach = products @ mean
    around = products - reach[:, None] - reach[None, :] + mean @ reach
    roots = mean.sqrt()
    variances, vectors = torch.linalg.eigh(roots[:, None] * around * roots[None, :])
    variance = float(variances[-1])
    if variance <= 0:
        return variance, torch.zeros_like(mean)
    return variance, (around @ (roots * vectors[:, -1])).square_() / variance
