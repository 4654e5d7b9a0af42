"""A mean in which contributions count by their samples, and less the later they come."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tweed.aggregate.base import Aggregate, Answer, Arrival, Gathered, Reason, Verdict
from tweed.aggregate.tensor_ops import as_given, combined, rows_of
from tweed.errors import UsageError


class Averaged(Aggregate[Gathered]):
    """What such means share. Contributions that are not finite or of another shape than most are left out."""

    __slots__ = ()
    samples: bool

    def require(self, contributors: int) -> None:
        """Any number will do."""

    def start(self) -> Gathered:
        return Gathered()

    def handle(self, event: Arrival | Answer, state: Gathered, now: float) -> Gathered:
        """Puts an arrival in its sender's place."""
        return state.plus(event)

    def poll(self, state: Gathered, now: float) -> tuple[Any, tuple[Verdict, ...], Gathered]:
        """The average of what has arrived, zeros if nothing can be believed; and an empty state."""
        if not state.arrivals:
            return None, (), state
        rows = rows_of(state.arrivals)
        fine = [row.fits and bool(row.value.isfinite().all()) for row in rows]
        counts = [self._count(one) if fits else 0.0 for one, fits in zip(state.arrivals, fine, strict=True)]
        most = max(counts)
        counts = [
            count / most if most else 0.0 for count in counts
        ]  # their sum is a number, whatever they say
        total = sum(counts)
        weights = [
            count / total * self.discount(one.delay) if count else 0.0
            for one, count in zip(state.arrivals, counts, strict=True)
        ]
        whole = [(row, weight) for row, weight in zip(rows, weights, strict=True) if row.fits]
        update = combined(*zip(*whole, strict=True)) if total else None
        verdicts = tuple(
            Verdict(row.sender, weight, self._reason(row.fits, finite))
            for row, weight, finite in zip(rows, weights, fine, strict=True)
        )
        return as_given(update, rows, state.arrivals), verdicts, Gathered()

    def discount(self, delay: int) -> float:
        """How much a contribution counts that comes so many updates late; 1 without a delay."""
        raise NotImplementedError  # each has its own

    def _count(self, arrival: Arrival) -> float:
        if not self.samples:
            return 1.0
        return arrival.samples if 0 < arrival.samples < math.inf else 0.0

    def _reason(self, fits: bool, finite: bool) -> Reason:
        if finite:
            return Reason.SAMPLES_AND_DELAY
        return Reason.NOT_FINITE if fits else Reason.SHAPE


@dataclass(frozen=True, slots=True)
class Weighted(Averaged):
    """The average over samples, each contribution times `(1 + delay) ** -power`.

    The discount is of the update: what is late moves the model less, and is not made good by others counting
    more. Contributions that are not finite or of another shape than most are left out.

    Args:
      samples: whether contributions count by their samples, which are believed; otherwise alike.
      power: 0: delay does not matter.

    Raises: UsageError for a power below 0.
    Cost: two passes over each contribution.
    Source: Xie, Koyejo, Gupta, "Asynchronous federated optimization", 2019 (polynomial staleness); samples as
      in McMahan et al., "Communication-efficient learning of deep networks from decentralized data", 2017.
    """

    samples: bool = True
    power: float = 0.5

    def __post_init__(self) -> None:
        if not self.power >= 0:
            raise UsageError(f"{self!r}: power is to be from 0 on")

    def discount(self, delay: int) -> float:
        return float((1 + delay) ** -self.power)
