"""The last aggregate, moved by what contributions differ from it, none by more than a radius."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tweed.aggregate.base import Gathered, Reason
from tweed.aggregate.distance_based import DistanceBased, distances_to
from tweed.aggregate.tensor_ops import Row, combined
from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Centred(Gathered):
    """A state: `centre` is the last aggregate, None before the first one."""

    centre: Tensor | None = None


@dataclass(frozen=True, slots=True)
class CentredClipping(DistanceBased):
    """Adds the average difference of contributions to the last aggregate, each clipped to `radius`.

    Workers should send momenta rather than gradients: they change little from step to step.

    Args:
      radius: in units of contributions: about as long as an honest difference.
      iterations: so often, each time from the new centre.

    Raises: UsageError for arguments that cannot be.
    Source: Karimireddy, He, Jaggi, "Learning from history for Byzantine robust optimization", 2021,
      algorithm 2.
    """

    radius: float = 10.0
    iterations: int = 1
    reason: ClassVar[Reason] = Reason.BY_DISTANCE

    def __post_init__(self) -> None:
        if not (self.radius > 0 and self.iterations >= 1):
            raise UsageError(f"{self!r}: radius is to be above 0, iterations at least 1")

    def start(self) -> Centred:
        """Nothing has arrived; the centre is zero."""
        return Centred()

    def weights(self, products: Tensor, byzantine: int) -> Tensor:
        """The weights of contributions, and last the weight of the centre."""
        centre = products.new_zeros(len(products))
        centre[-1] = 1
        for _ in range(self.iterations):
            kept = (self.radius / distances_to(centre, products)[:-1]).clamp_(max=1)
            moved = centre * (1 - kept.mean())
            moved[:-1] += kept / len(kept)
            centre = moved
        return centre

    def _beside(self, state: Centred, rows: Sequence[Row]) -> Sequence[Tensor]:
        return [self._centre(state, rows)] if rows else []

    def _combine(self, rows: Sequence[Row], weights: Sequence[float], state: Centred) -> Tensor:
        centre = rows[0]._replace(value=self._centre(state, rows))
        return combined([*rows, centre], weights)

    def _after(self, state: Centred, rows: Sequence[Row], update: Tensor | None) -> Centred:
        return Centred(centre=state.centre if update is None else update.clone())

    def _centre(self, state: Centred, rows: Sequence[Row]) -> Tensor:
        like = rows[0].value
        if state.centre is None or state.centre.shape != like.shape:  # another model: it begins anew
            return like.new_zeros(like.shape)
        return state.centre.to(like.dtype)
