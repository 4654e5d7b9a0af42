"""Seconds to build and check a schedule."""

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
            seconds, sends = min(_timed(builder, ranks) for _ in range(_REPEATS))
            yield {
                "part": "schedule",
                "side": builder.name,
                "ranks": ranks,
                "sends": sends,
                "least_s": seconds,
            }


def _timed(builder: Builder, ranks: int) -> tuple[float, int]:
    began = time.perf_counter()
    schedule = builder.schedule(ranks)
    return round(time.perf_counter() - began, 6), len(schedule)
