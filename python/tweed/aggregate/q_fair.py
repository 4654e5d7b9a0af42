"""A mean in which contributions count more the larger their loss, so that no member is left behind."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from tweed.aggregate.base import Aggregate, Answer, Arrival, Gathered, Reason, Verdict
from tweed.aggregate.tensor_ops import Row, as_given, combined, rows_of
from tweed.errors import UsageError


@dataclass(frozen=True, slots=True)
class QFair(Aggregate[Gathered]):
    """Adds up contributions by their loss to the power of `q`: who is worst off counts most.

        sum of F ** q * u   /   sum of (F ** q + q * F ** (q - 1) * rho * |u|^2)

    for contributions `u` with losses `F`. The second term keeps steps short where losses change fast. Losses
    are those at the model that a contribution was computed on, and are believed: this is against unlike data,
    not against hostile members. What is not finite, of another shape than most, or without a loss above 0, is
    left out.

    Args:
      q: 0: a mean of all; the larger, the more it counts who is worst off.
      rho: what the norm costs: the learning rate of the hub's optimizer where gradients are exchanged, and 1
        over that of workers where differences are (1 / L and L in the paper).

    Raises: UsageError for settings that cannot be.
    Cost: two passes over each contribution.
    Source: Li, Sanjabi, Beirami, Smith, "Fair resource allocation in federated learning", 2020 (q-FedSGD and
      q-FedAvg), from memory; there members are drawn by their samples.
    """

    q: float = 1.0
    rho: float = 10.0
    needs_losses: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (0 <= self.q < math.inf and 0 <= self.rho < math.inf):
            raise UsageError(f"{self!r}: q and rho are to be from 0 on")

    def require(self, contributors: int) -> None:
        """Any number of contributions will do."""

    def start(self) -> Gathered:
        return Gathered()

    def handle(self, event: Arrival | Answer, state: Gathered, now: float) -> Gathered:
        """Puts an arrival in its sender's place."""
        return state.plus(event)

    def poll(self, state: Gathered, now: float) -> tuple[Any, tuple[Verdict, ...], Gathered]:
        """The weighted sum of what has arrived, zeros if nothing can be counted; and an empty state."""
        if not state.arrivals:
            return None, (), state
        rows = rows_of(state.arrivals)
        reasons = [self._reason(row, one) for row, one in zip(rows, state.arrivals, strict=True)]
        counted = [
            (row, math.log(one.loss) if self.q else 0.0)
            for row, one, reason in zip(rows, state.arrivals, reasons, strict=True)
            if reason is Reason.BY_LOSS
        ]
        weights = self._weights(counted)
        update = combined([row for row, _ in counted], list(weights.values())) if counted else None
        verdicts = tuple(
            Verdict(row.sender, weights.get(row.sender, 0.0), reason)
            for row, reason in zip(rows, reasons, strict=True)
        )
        return as_given(update, rows, state.arrivals), verdicts, Gathered()

    def _weights(self, counted: list[tuple[Row, float]]) -> dict[int, float]:
        """The weights by sender; each of `counted` has the logarithm of its loss. Powers of the largest
        cancel out."""
        most = max((log for _, log in counted), default=0.0)
        shares, total = {}, 0.0
        for row, log in counted:
            squared = float(row.value.double().square().sum())
            shares[row.sender] = math.exp(self.q * (log - most))
            total += shares[row.sender]
            if self.q and squared:
                cost = math.log(self.q * self.rho * squared) if self.rho else -math.inf
                total += math.exp(min(700.0, cost + self.q * (log - most) - log))
        return {sender: share / total for sender, share in shares.items()}

    def _reason(self, row: Row, arrival: Arrival) -> Reason:
        if not row.fits:
            return Reason.SHAPE
        if not bool(row.value.isfinite().all()):
            return Reason.NOT_FINITE
        return Reason.BY_LOSS if not self.q or 0 < arrival.loss < math.inf else Reason.NO_LOSS
