"""The average of those contributions along which the loss on trusted samples falls most."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from tweed.aggregate.base import Gathered, Losses, Reason, Value, Verdict
from tweed.aggregate.bounded import Bounded
from tweed.aggregate.tensor_ops import as_given, combined, rows_of
from tweed.aggregate.trusted import TrustedSamples, verdict, whole
from tweed.errors import UsageError


@dataclass(frozen=True, slots=True)
class Zeno(Bounded, TrustedSamples):
    """Averages all but the `f` contributions `u` with the lowest score, which is

        loss(x) - loss(x - lr * u) - rho * |u|^2

    on a few trusted samples, at the model `x`.

    Args:
      f: contributions that may be anything: a number, or a share of those that arrive, rounded down; all but
        one at most, also more than half.
      lr: of the hub's optimizer: how far a contribution would go by itself; 1 for differences.
      rho: what the norm costs. Of two contributions that help alike the shorter counts.

    Raises: UsageError for settings that cannot be; in `poll` and `attach` where too few contribute.
    Cost: a forward pass over the trusted samples for each contribution, and one more.
    Source: Xie, Koyejo, Gupta, "Zeno: distributed stochastic gradient descent with suspicion-based
      fault-tolerance", 2019.
    """

    lr: float = 0.1
    rho: float = 0.0
    most: ClassVar[float] = 1.0
    one_by_one: ClassVar[bool] = False
    exchanges: ClassVar[frozenset[str]] = frozenset({"gradient", "difference", "model"})

    def __post_init__(self) -> None:
        Bounded.__post_init__(self)
        if not (0 < self.lr < math.inf and 0 <= self.rho < math.inf):
            raise UsageError(f"{self!r}: lr is to be above 0, and rho from 0 on")

    def least(self, byzantine: int) -> int:
        """The fewest contributions: those that may be anything, and one that is kept."""
        return byzantine + 1

    def poll(self, state: Gathered, now: float) -> tuple[Value | Losses | None, tuple[Verdict, ...], Any]:
        """The question for losses; and when that is answered, the average, zeros if none can be judged."""
        if not state.arrivals:
            return None, (), state
        self.require(len(state.arrivals))
        rows = rows_of(state.arrivals)
        judged = whole(rows)
        if state.answer is None:
            return Losses([row.value for row in judged], self.lr), (), state
        before, *after = state.answer.tolist()
        scores = [self._score(before - loss, row.value) for loss, row in zip(after, judged, strict=True)]
        count = min(len(judged), len(rows) - self.byzantine(len(rows)))
        kept = sorted(range(len(judged)), key=lambda at: (-scores[at], at))[:count]
        kept = [at for at in kept if scores[at] > -math.inf]
        weights = {row.sender: (at in kept) / max(1, len(kept)) for at, row in enumerate(judged)}
        update = combined(judged, list(weights.values())) if kept else None
        by_sender = {row.sender: score for row, score in zip(judged, scores, strict=True)}
        found = tuple(verdict(row, weights, Reason.DESCENDS, Reason.ASCENDS, by_sender) for row in rows)
        return as_given(update, rows, state.arrivals), found, Gathered()

    def _score(self, descent: float, value: Any) -> float:
        found = descent - self.rho * float(value.double().square().sum())
        return found if math.isfinite(found) else -math.inf
