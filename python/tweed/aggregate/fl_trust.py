"""Contributions count by how much they point where the gradient of trusted samples does."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tweed.aggregate.base import Gathered, Reason, TrustedGradient, Value, Verdict
from tweed.aggregate.tensor_ops import as_given, combined, rows_of
from tweed.aggregate.trusted import TrustedSamples, of_norm, verdict, whole


@dataclass(frozen=True, slots=True)
class FLTrust(TrustedSamples):
    """Averages contributions, each brought to the norm of the gradient of trusted samples, by their cosine
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
        rows, trusted = rows_of(state.arrivals), state.answer.flatten().double()
        norm = float(trusted.norm())
        judged, cosines = [], []
        for row in whole(rows):
            scaled, direction = of_norm(row, norm)
            judged.append(scaled)
            says = 0 < norm < math.inf
            cosines.append(float(direction @ trusted) / norm if says else 0.0)
        total = sum(max(0.0, cosine) for cosine in cosines)
        shares = [max(0.0, cosine) / total if total else 0.0 for cosine in cosines]
        weights = {row.sender: share for row, share in zip(judged, shares, strict=True)}
        scores = {row.sender: cosine for row, cosine in zip(judged, cosines, strict=True)}
        update = combined(judged, shares) if total else None
        reasons = Reason.LIKE_TRUSTED, Reason.UNLIKE_TRUSTED
        found = tuple(verdict(row, weights, *reasons, scores) for row in rows)
        return as_given(update, rows, state.arrivals), found, Gathered()
