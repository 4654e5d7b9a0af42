"""How fast the simulator runs: its own steps per second of one core."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.run import Row
from tweed import simulate
from tweed.collective import Schedule, Topology, build

_BYTES = 100 << 20
_REPEATS = 3
_LONG_S = 1.0  # a run as long as this is not repeated


def events(counts: tuple[int, ...]) -> Iterator[Row]:
    """An all-reduce of 100 MB for each of these numbers of ranks, all linked at 1 Gbit/s and 50 µs."""
    for ranks in counts:
        topology = Topology.complete(ranks, bandwidth=125_000_000, latency_s=50e-6)
        for name in ("ring", "halving_doubling", "double_binary_tree"):
            schedule = build("all_reduce", name, ranks)
            seconds, result = _quickest(schedule, topology)
            yield {
                "part": "simulator",
                "side": name,
                "ranks": ranks,
                "events": result.events,
                "virtual_s": result.seconds,
                "least_s": round(seconds, 6),
            }


def _quickest(schedule: Schedule, topology: Topology) -> tuple[float, simulate.Result]:
    runs = [_timed(schedule, topology)]
    while len(runs) < _REPEATS and runs[0][0] < _LONG_S:
        runs.append(_timed(schedule, topology))
    return min(runs, key=lambda run: run[0])


def _timed(schedule: Schedule, topology: Topology) -> tuple[float, simulate.Result]:
    began = time.perf_counter()
    result = simulate.run(schedule, _BYTES, topology)
    return time.perf_counter() - began, result
