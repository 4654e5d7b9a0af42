"""The average of what is nearest to one contribution that is believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tweed.aggregate.base import Reason
from tweed.aggregate.distance_based import BoundedDistanceBased, lowest, squared_distances
from tweed.aggregate.tensor_ops import Row

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class MoNNA(BoundedDistanceBased):
    """Averages the `n - f` contributions that are nearest to that of one sender, which is believed.

    Args:
      f: contributions that may be anything: a number, or a share of those that arrive, rounded down; less
        than half of them.
      sender: the one that is believed; if it did not come, nothing counts.

    Raises: UsageError for an `f` that cannot be; in `poll` and `attach` where too few contribute.
    Source: Farhadkhani, Guerraoui, Gupta, Hoang, Pinot, Stephan, "Robust collaborative learning with linear
      gradient overhead", 2023; there each worker believes itself.
    """

    sender: int = 0
    reason: ClassVar[Reason] = Reason.NEAR_SENDER

    def _weights(self, products: Tensor, accepted: Sequence[Row], count: int) -> list[float]:
        senders = [row.sender for row in accepted]
        if self.sender not in senders:
            return [0.0] * len(accepted)
        kept = max(1, min(len(accepted), count - self.byzantine(count)))
        nearest = lowest(squared_distances(products)[senders.index(self.sender)], kept)
        return [1 / kept if at in nearest else 0.0 for at in range(len(accepted))]
