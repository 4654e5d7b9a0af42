"""The average of those that spread least in any direction."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, ClassVar

from tweed.aggregate.base import Reason
from tweed.aggregate.distance_based import BoundedDistanceBased, mean_of
from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

_MOST = 100_000
#: Inner products of so many pairs are in memory together.
_AT_ONCE = 2_000_000


@dataclass(frozen=True, slots=True)
class SMEA(BoundedDistanceBased):
    """Averages the `n - f` contributions whose covariance has the smallest largest eigenvalue.

    Args:
      f: contributions that may be anything: a number, or a share of those that arrive, rounded down; less
        than half of them.

    Raises: UsageError for an `f` that cannot be; in `poll` and `attach` where too few contribute, or there
      are more than 100,000 subsets to try.
    Cost: an eigenvalue of an `[n - f, n - f]` matrix per subset, of which there are n over f.
    Source: Allouah, Guerraoui, Gupta, Pinot, Rizk, "On the privacy-robustness-utility trilemma in distributed
      learning", 2023.
    """

    reason: ClassVar[Reason] = Reason.NEAR_OTHERS

    def require(self, contributors: int) -> None:
        BoundedDistanceBased.require(self, contributors)
        subsets = comb(contributors, self.byzantine(contributors))
        if subsets > _MOST:
            raise UsageError(
                f"{self!r} of {contributors} contributions would try {subsets:,} subsets, and the most is "
                f"{_MOST:,}. Take CAF"
            )

    def weights(self, products: Tensor, byzantine: int) -> Tensor:
        """Equal ones for the subset."""
        import torch

        count = len(products) - byzantine
        subsets = torch.tensor(list(combinations(range(len(products)), count)))
        largest = [
            torch.linalg.eigvalsh(centred(products[some[:, :, None], some[:, None, :]]))[:, -1]
            for some in torch.split(subsets, max(1, _AT_ONCE // count**2))
        ]
        return mean_of(subsets[int(torch.cat(largest).argmin())].tolist(), products)


def centred(products: Tensor) -> Tensor:
    """Inner products, `[..., n, n]`, of the vectors' differences from their mean."""
    rows = products.mean(dim=-1, keepdim=True)
    return products - rows - rows.mT + rows.mean(dim=-2, keepdim=True)
