"""Senders whose contributions have pointed the same way all along count less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from tweed.aggregate.base import Gathered, Reason
from tweed.aggregate.distance_based import DistanceBased
from tweed.aggregate.tensor_ops import Row

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class History(Gathered):
    """A state: `sums` has the sum of all earlier contributions of each sender."""

    sums: Mapping[int, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FoolsGold(DistanceBased):
    """Weighs each sender by how unlike all others its contributions have been, all told.

    Against many hostile members that want the same; not against one. Where honest workers have the same
    data, they look alike, too: the fewer classes each has, the better.

    Cost: beside that of all such rules, the memory of two more contributions for each sender that ever came.
    Source: Fung, Yoon, Beschastnikh, "The limitations of federated learning in Sybil settings", 2020,
      algorithm 1, with confidence 1 and all numbers of a contribution alike; here weights add up to one.
    """

    reason: ClassVar[Reason] = Reason.UNLIKE_OTHERS
    rejection: ClassVar[Reason] = Reason.LIKE_OTHERS

    def start(self) -> History:
        return History()

    def weights(self, products: Tensor, byzantine: int) -> Tensor:
        """The weights of contributions, and zeros for the sums, which are the other half of the vectors."""
        count = len(products) // 2
        likeness = _cosines(products[count:, count:]).fill_diagonal_(-1)
        most = likeness.max(dim=1).values if count > 1 else likeness.new_zeros(1)
        # an honest sender that is like a hostile one is pardoned: that one is still more like others
        likeness *= (most[:, None] / most[None, :].clamp(min=1e-12)).clamp(max=1).where(most[:, None] > 0, 1)
        found = (1 - likeness.max(dim=1).values).clamp(0, 1) if count > 1 else likeness.new_ones(1)
        found = found / found.max().clamp(min=1e-12)
        found = (found.clamp(1e-9, 1 - 1e-9).logit() + 0.5).clamp_(0, 1)
        total = found.sum()
        weights = products.new_zeros(len(products))
        weights[:count] = found / total if total > 0 else 1 / count
        return weights

    def _kept(self, computable: Tensor, count: int) -> Tensor:
        both = computable[:count] & computable[count:]
        return both.repeat(2)

    def _beside(self, state: History, rows: Sequence[Row]) -> Sequence[Tensor]:
        return [self._sum(state, row) for row in rows]

    def _after(self, state: History, rows: Sequence[Row], update: Tensor | None) -> History:
        return History(sums={**state.sums, **{row.sender: self._sum(state, row) for row in rows}})

    def _sum(self, state: History, row: Row) -> Tensor:
        earlier = state.sums.get(row.sender)
        if earlier is None or earlier.shape != row.value.shape:  # another model: it begins anew
            return row.value.double().clone()
        return row.value + earlier


def _cosines(products: Tensor) -> Tensor:
    norms = products.diagonal().sqrt().clamp(min=1e-300)
    return products / norms[:, None] / norms[None, :]
