"""Outside the ranks: starts them, and makes one row of what all of them measured."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from tweed.systems.harness.benchmark import Measured
from tweed.testbed import run_ranks

#: One line of the raw data. `part` says what else is in it.
Row = dict[str, Any]
TIMEOUT_S = 400.0  # of all cases of one start of ranks; on an idle machine they take about a minute

#: Runs `fn(rank, ranks, *args)` on every rank in a default group of tweed, and gives what each returned.
Launch = Callable[..., list[Any]]
forked: Launch = partial(run_ranks, backend="tweed", timeout=TIMEOUT_S)


class Measurement(NamedTuple):
    """One size of one piece of work, as one rank measured it, by side."""

    part: str
    size_bytes: int
    sides: dict[str, Measured]


def timings(
    fn: Callable[..., list[Measurement]], ranks: int, *args: object, launch: Launch = forked, **marks: object
) -> Iterator[Row]:
    """Runs `fn(rank, ranks, *args)`; gives a row for each measurement and side, with `marks` in it."""
    print(f"  {fn.__module__}.{fn.__name__}, {ranks} ranks", file=sys.stderr, flush=True)
    results = launch(fn, ranks, *args)
    for measurements in zip(*results, strict=True):
        for side in measurements[0].sides:
            yield _row(measurements, side) | marks


def least_s(call: Callable[[], object], calls: int) -> float:
    """The best of some calls, after one for page faults."""
    spans = []
    for _ in range(calls + 1):
        began = time.perf_counter()
        call()
        spans.append(time.perf_counter() - began)
    return round(min(spans[1:]), 6)


def _row(measurements: Sequence[Measurement], side: str) -> Row:
    """A call lasts as long as on its slowest rank."""
    first, ranks = measurements[0], len(measurements)
    for of_rank in measurements:
        if (failed := of_rank.sides[side].failed) is not None:
            raise RuntimeError(f"{first.part}, {side}: {failed}")
    blocks = list(zip(*(of_rank.sides[side].rounds for of_rank in measurements), strict=True))
    calls_s = [[max(call) for call in zip(*(one.calls_s for one in block), strict=True)] for block in blocks]
    every = sorted(call for block in calls_s for call in block)
    lasted_s = [max(sum(one.calls_s) for one in block) / len(block[0].calls_s) for block in blocks]
    cpu_s = sum(one.cpu_s for block in blocks for one in block)
    row = {
        "part": first.part,
        "ranks": ranks,
        "bytes": first.size_bytes,
        "side": side,
        "calls": len(every),
        "median_s": _short(statistics.median(every)),
        "p99_s": _short(quantile(every, 0.99)),
        "least_s": _short(every[0]),
        "mean_s": _short(statistics.mean(every)),
        "in_a_row_s": _short(statistics.median(lasted_s)),
        "cpu_s_per_call": _short(cpu_s / len(every)),
        "block_medians_s": [_short(statistics.median(block)) for block in calls_s],
    }
    sent = [one.sent_bytes for block in blocks for one in block if one.sent_bytes is not None]
    row |= {"sent_bytes_per_call": round(sum(sent) / len(every) / ranks)} if sent else {}
    returned = [value for block in blocks for one in block for value in one.returned]
    return row | ({"returned_mean": _short(statistics.mean(returned))} if returned else {})


def replaced(rows: Sequence[Row], by: Sequence[Row]) -> list[Row]:
    """`rows` with what `by` has measured anew; each keeps the environment that it was measured in.

    One in which only the same parts were measured goes with them.
    """
    anew = {_which(row) for row in by if row["part"] not in ("environment", "no testbed")}
    only = [row["only"] for row in by if "only" in row]
    return [row for row in rows if _which(row) not in anew and row.get("only") not in only] + list(by)


def _which(row: Row) -> tuple[object, ...]:
    return tuple(row.get(name) for name in ("part", "network", "ranks", "bytes", "side", "when", "way"))


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that is not below `share` of all; of few values, the largest."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _short(value: float) -> float:
    """Four digits: raw data are kept in the repository."""
    return float(f"{value:.4g}")
