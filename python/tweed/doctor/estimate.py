"""Figures from round trips between two ranks. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: Pieces grow from the first to the last size until one is long enough to be a measurement.
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


def next_bytes(size: int, took_s: float, rtt_s: float) -> int | None:
    """Size of the next piece, after one of `size` bytes took `took_s`; None: that one was long enough.

    It is long enough when it lasted `_LONG_S` and three round trips, in which TCP's window has opened.
    """
    carried, wanted = carried_s(took_s, rtt_s), max(_LONG_S, 3 * rtt_s)
    if carried >= wanted or size >= LAST_BYTES:
        return None
    factor = min(8.0, max(2.0, 1.2 * wanted / carried))
    return min(LAST_BYTES, int(size * factor))
