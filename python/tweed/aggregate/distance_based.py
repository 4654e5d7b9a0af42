"""Rules that judge a contribution as a whole, by its distances to the others.

    a batch is there        poll asks for inner products of all contributions, [n, n]
    these are handled       poll weighs contributions by them, and adds them up

All that such a rule computes on the way (a centre, a covariance, the mean of a few) is a weighted sum of the
contributions. So its distances follow from their inner products, and contributions are read twice, however
often a rule goes over them. An owner of a range has the inner products of its range; the sum over owners is
that of whole contributions. All owners so weigh alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tweed.aggregate.base import Aggregate, Answer, Arrival, Gathered, InnerProducts, Reason, Value, Verdict
from tweed.aggregate.bounded import Bounded
from tweed.aggregate.tensor_ops import Row, as_given, combined, rows_of

if TYPE_CHECKING:
    from torch import Tensor


#: Contributions of float32 are always shorter.
_LONGEST = 1e70


class DistanceBased(Aggregate[Any]):
    """What these rules share: a subclass says how much each contribution counts.

    One of another shape than most, or that is not finite or longer than 1e70, is left out and counts as one
    of those that may be anything. What the network lost of a contribution counts as zero.

    Cost of all: contributions in memory, read twice; and n^2 multiplications per number.
    """

    __slots__ = ()
    compares: ClassVar[bool] = True
    reason: ClassVar[Reason]
    rejection: ClassVar[Reason] = Reason.FAR

    def byzantine(self, count: int) -> int:
        """How many of `count` contributions may be anything; 0 where the rule need not know."""
        return 0

    def require(self, contributors: int) -> None:
        """Any number of contributions will do."""

    def weights(self, products: Tensor, byzantine: int) -> Tensor:
        """How much each contribution counts: `[n]`, from 0 on.

        Args:
          products: their inner products, `[n, n]` float64, finite.
          byzantine: so many of them may be anything, and not more than `require` allows.
        """
        raise NotImplementedError  # each rule has its own

    def scores(self, products: Tensor, byzantine: int) -> Tensor | None:
        """What contributions are chosen by, `[n]`, for verdicts; None: that is not one value for each.

        Args: as of `weights`.
        """
        return None

    def start(self) -> Any:
        return Gathered()

    def handle(self, event: Arrival | Answer, state: Any, now: float) -> Any:
        """Puts an arrival in its sender's place, or takes inner products."""
        return state.plus(event)

    def poll(self, state: Any, now: float) -> tuple[Value | InnerProducts | None, tuple[Verdict, ...], Any]:
        """A question; and when that is answered, what the arrivals come to, zeros if none can be believed.

        Raises: UsageError as `require`.
        """
        if not state.arrivals:
            return None, (), state
        self.require(len(state.arrivals))
        rows = rows_of(state.arrivals)
        whole = [row for row in rows if row.fits]
        if state.answer is None:
            return InnerProducts([*(row.value for row in whole), *self._beside(state, whole)]), (), state
        kept = self._kept(computable(state.answer), len(whole))
        accepted = [row for row, fine in zip(whole, kept.tolist(), strict=False) if fine]
        products = state.answer[kept][:, kept]
        weights = self._weights(products, accepted, len(rows))
        update = self._combine(accepted, weights, state) if accepted else None
        counts = dict(zip((row.sender for row in accepted), weights, strict=False))
        scores = self._scores(products, accepted, len(rows))
        verdicts = tuple(self._verdict(row, counts, scores) for row in rows)
        return as_given(update, rows, state.arrivals), verdicts, self._after(state, accepted, update)

    def _weights(self, products: Tensor, accepted: Sequence[Row], count: int) -> list[float]:
        """The weights of those that are `accepted` among `count` contributions, and of what is beside
        them."""
        if not accepted:
            return []
        found: list[float] = self.weights(products, self._left(accepted, count)).tolist()
        return found

    def _scores(self, products: Tensor, accepted: Sequence[Row], count: int) -> dict[int, float]:
        found = self.scores(products, self._left(accepted, count)) if accepted else None
        return (
            {} if found is None else dict(zip((row.sender for row in accepted), found.tolist(), strict=False))
        )

    def _left(self, accepted: Sequence[Row], count: int) -> int:
        """How many of those that are believed may be anything: what is left out was one of them."""
        return max(0, self.byzantine(count) - (count - len(accepted)))

    def _verdict(self, row: Row, counts: dict[int, float], scores: Mapping[int, float]) -> Verdict:
        if not row.fits:
            return Verdict(row.sender, 0.0, Reason.SHAPE)
        if row.sender not in counts:
            return Verdict(row.sender, 0.0, Reason.NOT_FINITE)
        weight = counts[row.sender]
        return Verdict(row.sender, weight, self.reason if weight else self.rejection, scores.get(row.sender))

    def _kept(self, computable: Tensor, count: int) -> Tensor:
        """Which of the vectors are gone on with: of `count` contributions and of what is beside them."""
        return computable

    def _beside(self, state: Any, rows: Sequence[Row]) -> Sequence[Tensor]:
        """Vectors whose inner products the rule needs besides; behind those of contributions."""
        return ()

    def _combine(self, rows: Sequence[Row], weights: Sequence[float], state: Any) -> Tensor | None:
        """What `rows` come to, and what is beside them, if it counts."""
        return combined(rows, weights[: len(rows)])

    def _after(self, state: Any, rows: Sequence[Row], update: Tensor | None) -> Any:
        """The state for the next batch."""
        return Gathered()


class BoundedDistanceBased(Bounded, DistanceBased):
    """Such a rule that is told how many contributions may be anything."""

    __slots__ = ()


def computable(products: Tensor) -> Tensor:
    """Which vectors are finite, and so short that products of their inner products are finite, too."""
    return products.diagonal() < _LONGEST**2


def squared_distances(products: Tensor) -> Tensor:
    """`[n, n]`, of vectors with these inner products."""
    squared = products.diagonal()
    found = (squared[:, None] + squared[None, :] - 2 * products).clamp_(min=0)
    return found.fill_diagonal_(0)


def distances_to(weights: Tensor, products: Tensor) -> Tensor:
    """`[n]`: how far each vector is from the sum of all, each times its weight."""
    reach = products @ weights
    return (products.diagonal() - 2 * reach + weights @ reach).clamp_(min=0).sqrt_()


def lowest(scores: Tensor, count: int) -> list[int]:
    """Where the `count` lowest of `scores` are; of two alike, the first."""
    return sorted(range(len(scores)), key=scores.tolist().__getitem__)[:count]


def mean_of(members: Sequence[int], products: Tensor) -> Tensor:
    """The weights of a mean over `members`."""
    found = products.new_zeros(len(products))
    found[list(members)] = 1 / len(members)
    return found
