"""Figures from round trips between two ranks. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: Pieces grow from the first to the last size until they are long enough to be a measurement.
FIRST_BYTES, LAST_BYTES = 16 * 2**10, 64 * 2**20
_LONG_S = 0.15


@dataclass(frozen=True, slots=True)
class Trip:
    """A round trip: `sent_s`, `back_s` by our clock, `there_s` by the other's, `took_s` by a steady one."""

    sent_s: float
    there_s: float
    back_s: float
    took_s: float


@dataclass(frozen=True, slots=True)
class Piece:
    """So many bytes, and how long it took until the answer was back."""

    size: int
    took_s: float


@dataclass(frozen=True, slots=True)
class Clock:
    """How far the other's clock is ahead of ours, and by how much that may be wrong."""

    ahead_s: float
    error_s: float


def clock(trips: Sequence[Trip]) -> Clock:
    """From the quickest trip, as NTP does: its two ways differ least. The error is half of that trip.

    Raises: ValueError without trips.
    """
    best = min(trips, key=lambda trip: trip.took_s)
    return Clock(best.there_s - (best.sent_s + best.back_s) / 2, best.took_s / 2)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of `values` that at least `share` of them do not exceed. Raises ValueError for none."""
    if not values:
        raise ValueError("no values")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def carried_s(took_s: float, rtt_s: float) -> float:
    """Time for which a piece was on the link: what it took until the answer, less an empty round trip."""
    return max(took_s - rtt_s, took_s / 20, 1e-6)


def next_bytes(pieces: Sequence[Piece], rtt_s: float) -> int | None:
    """Size of the next piece after `pieces`; None: the last two were long enough, and give the rate.

    A piece is long enough when it lasted `_LONG_S` and three round trips, in which TCP's window has opened,
    or cannot grow. One alone is no proof: a lost packet at the end of a small piece stops it for 0.2 s.
    """
    if not pieces:
        return FIRST_BYTES
    size = pieces[-1].size
    if _enough(pieces[-1], rtt_s):
        return None if len(pieces) > 1 and _enough(pieces[-2], rtt_s) else size
    factor = 1.2 * max(_LONG_S, 3 * rtt_s) / carried_s(pieces[-1].took_s, rtt_s)
    return min(LAST_BYTES, int(size * min(8.0, max(2.0, factor))))


def rate(pieces: Sequence[Piece], rtt_s: float) -> float:
    """Bytes per second of the last two pieces."""
    last = pieces[-2:]
    return sum(one.size for one in last) / sum(carried_s(one.took_s, rtt_s) for one in last)


def _enough(piece: Piece, rtt_s: float) -> bool:
    return piece.size >= LAST_BYTES or carried_s(piece.took_s, rtt_s) >= max(_LONG_S, 3 * rtt_s)
