"""Many tasks that sleep, on eight workers: `map_tasks` beside concurrent.futures, and beside Ray's own tasks.

Workers of all sides stand before they are timed; how long ours took to start is told apart. Sides take turns
in each round. In a second kind of map 5 % of the tasks kill their worker amid their first run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from bench.run import Row
from bench.task_functions import Payload, after_all, sleep
from bench.units import digits, grid, seconds
from tweed.forkserver import server
from tweed.ray.installed import version
from tweed.workloads.tasks import LocalWorkers, RayWorkers, map_tasks
from tweed.workloads.tasks.events import Workers

PART = "tasks"
OURS, POOL, RAY = "map_tasks", "ProcessPoolExecutor", "Ray's tasks"
HERE, ON_RAY = "one machine", "Ray on one machine"
WORKERS, TASK_S, KILLED_EVERY, CHUNKS = 8, 0.01, 20, (1, 4, 16)
#: Of work over workers, and of the time without deaths, at most. Fixed on 2026-11-28, before the first run.
GOAL, GOAL_DEATHS = 1.2, 1.2


class Config(NamedTuple):
    """Tasks of a map here and on Ray, where starting a worker anew takes seconds of a core; and rounds."""

    tasks: int
    tasks_on_ray: int
    rounds: int


FULL, QUICK = Config(1000, 400, 7), Config(200, 80, 2)
Map = Callable[[Sequence[Payload]], list[int]]


def rows(config: Config) -> Iterator[Row]:
    """On this machine, then on a Ray cluster of its own, if Ray is installed."""
    print("  on this machine", file=sys.stderr, flush=True)
    server.preload("bench.task_functions")
    with LocalWorkers(1) as workers:
        _started(workers)  # starts the fork server
    with (
        LocalWorkers(WORKERS) as workers,
        ProcessPoolExecutor(WORKERS, get_context("forkserver")) as pool,
    ):
        start_s, ours = _started(workers), _ours(workers)
        sides = {OURS: ours} | {f"{POOL}, chunks of {size}": _pooled(pool, size) for size in CHUNKS}
        yield from _timed(HERE, sides, config.tasks, config.rounds, start_s, with_deaths=False)
        yield from _timed(HERE, {OURS: ours}, config.tasks, config.rounds, start_s, with_deaths=True)
    yield {"part": PART, "where": HERE, "side": POOL, "with_deaths": True, "breaks_after": _results(config)}
    if version() is not None:
        print("  on Ray", file=sys.stderr, flush=True)
        program = f"from bench.tasks import on_ray; on_ray({config.tasks_on_ray}, {config.rounds})"
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
        yield from (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))


def on_ray(tasks: int, rounds: int) -> None:
    """The driver of a cluster on this machine, which offers eight logical CPUs; prints rows."""
    import ray

    ray.init(num_cpus=2 * WORKERS, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    remote: Any = ray.remote
    task = remote(num_cpus=1, max_retries=3)(sleep)
    with RayWorkers(WORKERS) as workers:
        start_s = _started(workers)
        sides: dict[str, Map] = {
            OURS: _ours(workers),
            RAY: lambda payloads: ray.get([task.remote(payload) for payload in payloads]),
        }
        for with_deaths in (False, True):
            for row in _timed(ON_RAY, sides, tasks, rounds, start_s, with_deaths=with_deaths):
                print(json.dumps(row), flush=True)
    ray.shutdown()


def _started(workers: Workers) -> float:
    """Seconds until all workers have run a task."""
    began = time.perf_counter()
    with TemporaryDirectory() as folder:
        map_tasks(after_all, [(workers.count, 0.0, folder)] * workers.count, workers=workers)
    return time.perf_counter() - began


def _timed(
    where: str, sides: Mapping[str, Map], tasks: int, rounds: int, start_s: float, *, with_deaths: bool
) -> Iterator[Row]:
    """All sides in turns, each after a map that is not timed. A row for each."""
    took: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, run in sides.items():
            run(_payloads(10 * WORKERS, ""))
            with TemporaryDirectory() as folder:
                payloads = _payloads(tasks, folder if with_deaths else "")
                began = time.perf_counter()
                results = run(payloads)
                took[side].append(time.perf_counter() - began)
            if results != list(range(tasks)):
                raise RuntimeError("results are not those of the tasks")
    for side, each in took.items():
        row = {"part": PART, "where": where, "side": side, "with_deaths": with_deaths, "tasks": tasks}
        yield row | {
            "rounds": rounds,
            "start_s": round(start_s, 4) if side == OURS else 0.0,
            "work_s": round(median(each), 4),
            "works_s": [round(one, 4) for one in each],
        }


def _payloads(tasks: int, folder: str) -> list[Payload]:
    """With a folder, each twentieth task kills its worker the first time."""
    middle = KILLED_EVERY // 2
    marks = (f"{folder}/{task}" if folder and task % KILLED_EVERY == middle else "" for task in range(tasks))
    return [(task, TASK_S, mark) for task, mark in enumerate(marks)]


def _ours(workers: Workers) -> Map:
    return lambda payloads: [*map_tasks(sleep, payloads, workers=workers).values()]


def _pooled(pool: ProcessPoolExecutor, chunk: int) -> Map:
    return lambda payloads: list(pool.map(sleep, payloads, chunksize=chunk))


def _results(config: Config) -> int:
    """How many results a pool gives before it breaks: the first death of a worker ends it."""
    results: list[int] = []
    with TemporaryDirectory() as folder, ProcessPoolExecutor(WORKERS, get_context("forkserver")) as pool:
        # All workers start first: a pool of Python 3.11 that breaks while it starts one waits for ever.
        list(pool.map(sleep, _payloads(10 * WORKERS, "")))
        try:
            for result in pool.map(sleep, _payloads(config.tasks, folder)):
                results.append(result)
        except BrokenProcessPool:
            return len(results)
    raise RuntimeError("no worker was killed")


def ratio(row: Row) -> float:
    """Time over that of work spread evenly over the workers."""
    return float(row["work_s"]) / (row["tasks"] * TASK_S / WORKERS)


def deaths_cost(rows: Sequence[Row]) -> dict[tuple[str, str], float]:
    """By place and side: time with deaths over that without."""
    found = [row for row in rows if row["part"] == PART and "work_s" in row]
    calm = {(row["where"], row["side"]): row["work_s"] for row in found if not row["with_deaths"]}
    struck = {(row["where"], row["side"]): row["work_s"] for row in found if row["with_deaths"]}
    return {key: struck[key] / calm[key] for key in struck if key in calm}


def table(rows: Sequence[Row]) -> str:
    """Each side, in each place, plain and with deaths."""
    body = [_line(row) for row in rows if row["part"] == PART]
    head = ("where", "side", "workers", "tasks", "workers start in", "tasks take", "work over workers")
    note = f"Tasks sleep {1000 * TASK_S:g} ms. With deaths, each of 5 % of the tasks kills its worker once."
    return f"## Many small tasks\n\n{note}\n\n{grid(head, body)}" if body else ""


def _line(row: Row) -> tuple[str, ...]:
    deaths = "5 % of the tasks kill one" if row["with_deaths"] else "all live"
    if "breaks_after" in row:
        return (row["where"], row["side"], deaths, "", "", f"breaks after {row['breaks_after']} results", "")
    start = seconds(row["start_s"]) if row["start_s"] else "there before"
    took = (start, seconds(row["work_s"]), f"{digits(ratio(row))}x")
    return (row["where"], row["side"], deaths, f"{row['tasks']:,}", *took)
