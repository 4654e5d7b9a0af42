"""What tasks cost as serverless functions, and how long they take: simulated, by the bill of a provider.

    task ──> an instance that is free: it is warm
         ──> a new instance, below the cap of concurrency: a cold start comes first
         ──> waits, at the cap

All tasks are invoked at the start. An instance has a share of a core by its memory, so more memory is dearer
by the second and quicker, up to a full core: a fit has one thread.

Source: Kurz, "Distributed double machine learning with a serverless architecture", 2021.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tweed.errors import UsageError
from tweed.rng import uniform


@dataclass(frozen=True, slots=True)
class Platform:
    """Where functions run. The defaults are those of AWS Lambda: its prices in 2021, per GB-second and call.

    Attributes:
      memory_mb: of each instance.
      concurrency: instances at a time, at most.
      cold_start_s: what a new instance takes in the mean: half of it, and an exponential time.
      bills_cold_starts: whether that time is paid for.
      core_mb: the memory that comes with a full core.
      unit_s: durations are billed in multiples of it.
      gb_second_usd, call_usd: prices.

    Raises: UsageError for numbers that cannot be.
    """

    memory_mb: int = 1024
    concurrency: int = 1000
    cold_start_s: float = 2.0
    bills_cold_starts: bool = True
    core_mb: int = 1769
    unit_s: float = 0.001
    gb_second_usd: float = 1.66667e-5
    call_usd: float = 2e-7

    def __post_init__(self) -> None:
        at_least_one, above_zero = (self.memory_mb, self.concurrency, self.core_mb), (self.unit_s,)
        not_negative = (self.cold_start_s, self.gb_second_usd, self.call_usd)
        if min(at_least_one) < 1 or min(above_zero) <= 0 or min(not_negative) < 0:
            raise UsageError(f"{self} cannot be: give memory, concurrency and units above 0, and no negative")


class Bill(NamedTuple):
    """What came of tasks on a platform.

    Attributes:
      seconds: when the last one returned.
      gb_seconds: billed seconds times memory in GB of 1024 MB.
      cold_starts: instances that were started.
      usd: the price of all.
    """

    seconds: float
    calls: int
    gb_seconds: float
    cold_starts: int
    usd: float


class Point(NamedTuple):
    """A choice, and what it comes to."""

    platform: Platform
    bill: Bill


def simulate_bill(work_s: Sequence[float], platform: Platform, seed: int = 0) -> Bill:
    """Runs tasks, in order, on a platform.

    Args:
      work_s: by task, the seconds that it takes on a full core.
      seed: draws cold starts: the same one gives the same bill.

    Raises: UsageError for times that are negative or not finite.
    Cost: a step of a heap per task.
    """
    if bad := [task for task, seconds in enumerate(work_s) if not 0 <= seconds < math.inf]:
        raise UsageError(
            f"task {bad[0]} takes {work_s[bad[0]]} s, which cannot be: give 0 or more, in seconds"
        )
    share = min(1.0, platform.memory_mb / platform.core_mb)
    free_at: list[float] = []  # of the instances, as a heap
    units = 0
    for seconds in work_s:
        runs_s = seconds / share
        if len(free_at) < platform.concurrency:
            began, start_s = 0.0, _cold_start_s(platform, seed, len(free_at))
        else:
            began, start_s = heapq.heappop(free_at), 0.0
        heapq.heappush(free_at, began + start_s + runs_s)
        paid_s = runs_s + start_s * platform.bills_cold_starts
        units += math.ceil(round(paid_s / platform.unit_s, 6))
    gb_seconds = units * platform.unit_s * platform.memory_mb / 1024
    usd = gb_seconds * platform.gb_second_usd + len(work_s) * platform.call_usd
    return Bill(max(free_at, default=0.0), len(work_s), gb_seconds, len(free_at), usd)


def frontier(work_s: Sequence[float], platforms: Iterable[Platform], seed: int = 0) -> list[Point]:
    """The platforms that none of the others beats in both time and cost, the quickest first.

    Args: as `simulate_bill` has them.
    """
    points = [Point(platform, simulate_bill(work_s, platform, seed)) for platform in platforms]
    found: list[Point] = []
    for point in sorted(points, key=lambda point: (point.bill.seconds, point.bill.usd)):
        if not found or point.bill.usd < found[-1].bill.usd:
            found.append(point)
    return found


def coarse(work_s: Sequence[float], folds: int) -> list[float]:
    """The work of coarse tasks, of that of fine ones in order: of all folds together.

    Raises: UsageError if the tasks are no multiple of the folds.
    """
    if folds < 1 or len(work_s) % folds:
        raise UsageError(f"{len(work_s)} fine tasks are no multiple of {folds} folds: give those of the fits")
    return [math.fsum(work_s[begin : begin + folds]) for begin in range(0, len(work_s), folds)]


def _cold_start_s(platform: Platform, seed: int, instance: int) -> float:
    return platform.cold_start_s / 2 * (1 - math.log(1 - uniform(seed, instance)))
