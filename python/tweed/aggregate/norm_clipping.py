"""Contributions that are too long are made shorter."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

from tweed.aggregate.base import Aggregate
from tweed.aggregate.preprocess import BoundedPreprocess, Preprocess, check_inner
from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class NormClipping(Preprocess):
    """Shortens contributions that are longer than `length` to just that.

    Args:
      then: the rule that sees them.
      length: in units of contributions; or "median": that of the contribution in the middle.

    Raises: UsageError for arguments that cannot be.
    Source: Sun, Kairouz, Suresh, McMahan, "Can you really backdoor federated learning?", 2019.
    """

    then: Aggregate[Any]
    length: float | Literal["median"] = "median"

    def __post_init__(self) -> None:
        check_inner(self, self.then)
        if self.length != "median" and not (isinstance(self.length, Real) and self.length > 0):
            raise UsageError(f'{self!r}: length is to be above 0, or "median"')

    def shares(self, products: Tensor, batch: int) -> Tensor:
        """A factor for each, on the diagonal."""
        norms = products.diagonal().sqrt()
        most = float(norms.quantile(0.5)) if self.length == "median" else self.length
        return _shortened(norms, float(most))


@dataclass(frozen=True, slots=True)
class ARC(BoundedPreprocess):
    """Shortens the longest `2 f (n - f) / n` contributions, rounded down, to the norm of the next longest.

    So the number of those that are shortened grows with that of hostile ones, and their norm adapts.

    Args:
      then: the rule that sees them.
      f: contributions that may be anything: a number, or a share of those that arrive, rounded down; less
        than half of them.

    Raises: UsageError for arguments that cannot be.
    Source: Allouah, Guerraoui, Gupta, Jellouli, Rizk, Stephan, "Adaptive gradient clipping for robust
      federated learning", 2025 (adaptive robust clipping).
    """

    def shares(self, products: Tensor, batch: int) -> Tensor:
        """A factor for each, on the diagonal."""
        norms, count = products.diagonal().sqrt(), len(products)
        byzantine = min(count, self.byzantine(count))
        shortened = 2 * byzantine * (count - byzantine) // count
        return _shortened(norms, float(norms.sort().values[count - shortened - 1]))


def _shortened(norms: Tensor, most: float) -> Tensor:
    return (most / norms.clamp(min=1e-300)).clamp_(max=1).diag()
