"""Seconds to build a schedule, and to build and check it."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.run import Row
from tweed.collective import Pattern
from tweed.collective.chooser import priced_patterns

_REPEATS = 3


def built(counts: tuple[int, ...]) -> Iterator[Row]:
    """Every pattern of all_reduce, for each of these numbers of ranks; the quickest of three times."""
    for pattern, _ in priced_patterns("all_reduce", 2):
        for ranks in counts:
            times = [_timed(pattern, ranks) for _ in range(_REPEATS)]
            yield {
                "part": "schedule",
                "side": pattern.name,
                "ranks": ranks,
                "sends": times[0][2],
                "build_s": min(build_s for build_s, _, _ in times),
                "least_s": min(least_s for _, least_s, _ in times),
            }


def _timed(pattern: Pattern, ranks: int) -> tuple[float, float, int]:
    """Seconds of the builder alone, seconds for the whole schedule, and how many sends it has."""
    began = time.perf_counter()
    for _ in pattern.sends(ranks):
        pass
    given = time.perf_counter()
    schedule = pattern.schedule(ranks)
    return round(given - began, 6), round(time.perf_counter() - given, 6), len(schedule)
