"""Schedules: seconds to build one, and to build and check it; and how fast the simulator runs them."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.run import Row
from tweed import simulate
from tweed.collective import Pattern, Schedule, Topology, build
from tweed.collective.chooser import priced_patterns

_REPEATS = 3
_BYTES = 100 << 20
_LONG_S = 1.0  # a run of the simulator as long as this is not repeated


def built(counts: tuple[int, ...]) -> Iterator[Row]:
    """Every pattern of all_reduce, for each of these numbers of ranks; the quickest of three times."""
    for pattern, _ in priced_patterns("all_reduce", 2):
        for ranks in counts:
            times = [_built(pattern, ranks) for _ in range(_REPEATS)]
            yield {
                "part": "schedule",
                "side": pattern.name,
                "ranks": ranks,
                "sends": times[0][2],
                "build_s": min(build_s for build_s, _, _ in times),
                "least_s": min(least_s for _, least_s, _ in times),
            }


def _built(pattern: Pattern, ranks: int) -> tuple[float, float, int]:
    """Seconds of the builder alone, seconds for the whole schedule, and how many sends it has."""
    began = time.perf_counter()
    for _ in pattern.sends(ranks):
        pass
    given = time.perf_counter()
    schedule = pattern.schedule(ranks)
    return round(given - began, 6), round(time.perf_counter() - given, 6), len(schedule)


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
    runs = [_simulated(schedule, topology)]
    while len(runs) < _REPEATS and runs[0][0] < _LONG_S:
        runs.append(_simulated(schedule, topology))
    return min(runs, key=lambda run: run[0])


def _simulated(schedule: Schedule, topology: Topology) -> tuple[float, simulate.Result]:
    began = time.perf_counter()
    result = simulate.run(schedule, _BYTES, topology)
    return time.perf_counter() - began, result
