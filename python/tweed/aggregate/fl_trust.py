"""Contributions count by how much they point where the gradient of trusted samples does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tweed.aggregate.base import Gathered, Reason, TrustedGradient, Value, Verdict
from tweed.aggregate.rows import as_given, combined, rows_of
from tweed.aggregate.trusted import TrustedSamples, verdict, whole


@dataclass(frozen=True, slots=True)
class FLTrust(TrustedSamples):
    """Averages contributions, each brought to the length of the gradient of trusted samples, by their cosine
    with that; those against it count for nothing.

    Cost: a backward pass over the trusted samples per update, and two inner products per contribution.
    Source: Cao, Fang, Liu, Gong, "FLTrust: Byzantine-robust federated learning via trust bootstrapping",
      2021; there the hub takes local steps, too.
    """

    def poll(
        self, state: Gathered, now: float
    ) -> tuple[Value | TrustedGradient | None, tuple[Verdict, ...], Any]:
        """The question for a gradient; when that is answered, the average, zeros if all are against it."""
        if not state.arrivals:
            return None, (), state
        if state.answer is None:
            return TrustedGradient(), (), state
        rows = rows_of(state.arrivals)
        judged, trusted = whole(rows), state.answer.flatten().double()
        length = float(trusted.norm())
        lengths = [float(row.value.double().norm()) for row in judged]
        reach = [float(row.value.flatten().double() @ trusted) for row in judged]
        cosines = [
            max(0.0, inner / own / length) if own > 0 and length > 0 else 0.0
            for inner, own in zip(reach, lengths, strict=True)
        ]
        total = sum(cosines)
        weights = {
            row.sender: cosine / total * length / own if cosine else 0.0
            for row, cosine, own in zip(judged, cosines, lengths, strict=True)
        }
        update = combined(judged, list(weights.values())) if total else None
        found = tuple(verdict(row, weights, Reason.LIKE_TRUSTED, Reason.UNLIKE_TRUSTED) for row in rows)
        return as_given(update, rows, state.arrivals), found, Gathered()
