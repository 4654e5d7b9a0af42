"""Seconds to build a schedule, and to build and check it."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.run import Row
from tweed.collective import Builder, builders

_REPEATS = 3


def built(counts: tuple[int, ...]) -> Iterator[Row]:
    """Every builder of all_reduce, for each of these numbers of ranks; the quickest of three times."""
    for builder in builders("all_reduce"):
        for ranks in counts:
            times = [_timed(builder, ranks) for _ in range(_REPEATS)]
            yield {
                "part": "schedule",
                "side": builder.name,
                "ranks": ranks,
                "sends": times[0][2],
                "build_s": min(build_s for build_s, _, _ in times),
                "least_s": min(least_s for _, least_s, _ in times),
            }


def _timed(builder: Builder, ranks: int) -> tuple[float, float, int]:
    """Seconds of the builder alone, seconds for the whole schedule, and how many sends it has."""
    began = time.perf_counter()
    for _ in builder.sends(ranks):
        pass
    given = time.perf_counter()
    schedule = builder.schedule(ranks)
    return round(given - began, 6), round(time.perf_counter() - given, 6), len(schedule)
