"""Seconds to build a schedule, and seconds to check it."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.run import Row
from tweed.collective import Builder, builders, schedule

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
                "check_s": min(check_s for _, check_s, _ in times),
            }


def _timed(builder: Builder, ranks: int) -> tuple[float, float, int]:
    """Seconds to make the sends, seconds to check and freeze them, and how many there are."""
    began = time.perf_counter()
    sends = list(builder.sends(ranks))
    built = time.perf_counter()
    schedule(builder.name, builder.collective, ranks, builder.chunks(ranks), sends)
    checked = time.perf_counter()
    return round(built - began, 6), round(checked - built, 6), len(sends)
