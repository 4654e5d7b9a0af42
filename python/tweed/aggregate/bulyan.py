"""Krum picks contributions, and of these each number's nearest to the median count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tweed.aggregate.base import Reason
from tweed.aggregate.coordinate_wise import sort_and_combine
from tweed.aggregate.distance_based import BoundedDistanceBased, mean_of
from tweed.aggregate.krum import krum_scores
from tweed.aggregate.tensor_ops import Row

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Bulyan(BoundedDistanceBased):
    """Picks `n - 2 f` contributions by Krum, one after the other; of each number, averages those `n - 4 f` of
    the picked that are nearest to their median.

    So a hostile contribution that is near enough to be picked cannot put all of its distance into one number.

    Args:
      f: contributions that may be anything: a number, or a share of those that arrive, rounded down; less
        than a quarter of them.

    Raises: UsageError for an `f` that cannot be; in `poll` and `attach` where fewer than 4 f + 3 contribute.
    Source: El Mhamdi, Guerraoui, Rouault, "The hidden vulnerability of distributed learning in Byzantium",
      2018.
    """

    f: int | float = 0.2
    reason: ClassVar[Reason] = Reason.NEAREST

    def least(self, byzantine: int) -> int:
        return 4 * byzantine + 3 if byzantine else 1

    def weights(self, products: Tensor, byzantine: int) -> Tensor:
        """Equal ones for those that are picked."""
        left, picked = list(range(len(products))), list[int]()
        while len(picked) < len(products) - 2 * byzantine:
            scores = krum_scores(products[left][:, left], byzantine).tolist()
            picked.append(left.pop(scores.index(min(scores))))
        return mean_of(picked, products)

    def _combine(self, rows: Sequence[Row], weights: Sequence[float], state: Any) -> Tensor | None:
        picked = [row for row, weight in zip(rows, weights, strict=True) if weight]
        return sort_and_combine("bulyan", (len(rows) - len(picked)) // 2, picked)
