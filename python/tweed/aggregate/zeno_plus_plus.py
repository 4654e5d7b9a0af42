"""Contributions one by one, each judged by the gradient of trusted samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tweed.aggregate.base import Answer, Arrival, Gathered, Reason, TrustedGradient, Value, Verdict
from tweed.aggregate.tensor_ops import Row, as_given, combined, rows_of
from tweed.aggregate.trusted import TrustedSamples, of_norm, verdict, whole
from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Judged(Gathered):
    """A state.

    Attributes:
      trusted: the gradient of trusted samples that is judged by; None: there has been none.
      uses: contributions that were judged by it.
      records: of each sender, the mean of its cosines so far, younger ones counting more.
    """

    trusted: Tensor | None = None
    uses: int = 0
    records: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ZenoPlusPlus(TrustedSamples):
    """Brings each contribution `g` to the norm of the gradient `v` of trusted samples, and takes it if

        lr * <v, g> - rho * |g|^2 + lr * epsilon >= 0

    that is, if its cosine with `v` is at least `rho / lr - epsilon / |v|^2`. Of several that are there at
    once those that are taken are averaged. While `v` is not finite, or zero, nothing is taken.

    Args:
      lr: of the hub's optimizer.
      rho, epsilon: see above.
      every: `v` is asked for anew after so many contributions.
      record: 0: each contribution is judged by itself, as published. Above 0: in the place of its cosine
        stands a mean over its sender's so far, in which each counts `record` times as much as the next
        younger one. One honest gradient is noisy, a sender's mean is not.

    Raises: UsageError for settings that cannot be.
    Cost: a backward pass over the trusted samples per `every` contributions, and two inner products each.
    Source: Xie, Koyejo, Gupta, "Zeno++: robust fully asynchronous SGD", 2020, with the norm in the penalty
      taken after rescaling. The record is ours.
    """

    lr: float = 0.1
    rho: float = 1e-3
    epsilon: float = 0.0
    every: int = 10
    record: float = 0.0

    def __post_init__(self) -> None:
        fine = 0 < self.lr < math.inf and 0 <= self.rho < math.inf and 0 <= self.epsilon < math.inf
        if not (fine and self.every >= 1 and 0 <= self.record < 1):
            raise UsageError(
                f"{self!r}: lr is to be above 0, rho and epsilon from 0 on, every at least 1, record from 0 "
                "on and below 1"
            )

    def start(self) -> Judged:
        return Judged()

    def handle(self, event: Arrival | Answer, state: Judged, now: float) -> Judged:
        """Puts an arrival in its sender's place, or takes a gradient."""
        if isinstance(event, Answer):
            return replace(state, trusted=event.value, uses=0)
        return state.plus(event)

    def poll(
        self, state: Judged, now: float
    ) -> tuple[Value | TrustedGradient | None, tuple[Verdict, ...], Any]:
        """The question for a gradient, now and then; otherwise what was taken, zeros if nothing was."""
        if not state.arrivals:
            return None, (), state
        if state.trusted is None or state.uses >= self.every:
            return TrustedGradient(), (), state
        rows, trusted = rows_of(state.arrivals), state.trusted.flatten().double()
        norm = float(trusted.norm())
        if not 0 < norm < math.inf:  # it says nothing: no record changes, and another one is asked for
            found = tuple(verdict(row, dict.fromkeys(_senders(rows), 0.0), *_REASONS) for row in rows)
            return as_given(None, rows, state.arrivals), found, Judged(records=state.records)
        records, judged, taken = dict(state.records), whole(rows), []
        for row in judged:
            scaled, direction = of_norm(row, norm)
            cosine = float(direction @ trusted) / norm
            earlier = records.get(row.sender, cosine)
            records[row.sender] = self.record * earlier + (1 - self.record) * cosine
            if records[row.sender] >= self.rho / self.lr - self.epsilon / norm**2:
                taken.append(scaled)
        share = 1 / max(1, len(taken))
        weights = dict.fromkeys(_senders(judged), 0.0) | dict.fromkeys(_senders(taken), share)
        update = combined(taken, [share] * len(taken)) if taken else None
        found = tuple(verdict(row, weights, *_REASONS, records) for row in rows)
        after = Judged(trusted=state.trusted, uses=state.uses + len(rows), records=records)
        return as_given(update, rows, state.arrivals), found, after


_REASONS = Reason.LIKE_TRUSTED, Reason.UNLIKE_TRUSTED


def _senders(rows: Sequence[Row]) -> list[int]:
    return [row.sender for row in rows]
