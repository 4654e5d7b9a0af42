"""How long ranks take per step, side by side: the same gradients over the same network, in turns.

Every side has a group of its own among the same processes. They take turns in short rounds, so that what the
machine does meanwhile strikes all alike. Computing is a sleep of recorded length: processes that share a few
cores would otherwise wait for those, and not for the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tweed import testbed
from tweed.systems import runner
from tweed.systems.runner import Course, Lapped, Load, Side


@dataclass(frozen=True, slots=True)
class Cell:
    """What one side did over one network.

    Attributes:
      steps_s, sync_s: seconds of each measured step and of its exchange, of the slowest worker.
      contributed_bytes, lost_bytes: of all workers, in all steps; 0 and 0 where nothing can be lost.
      failed: why the side could not go on; None if it could.
    """

    side: str
    steps_s: list[float]
    sync_s: list[float]
    contributed_bytes: int
    lost_bytes: int
    failed: str | None


def record(task: str, batch: int) -> Load:
    """Measures a task's model in one process that has the machine to itself. Cost: about a second."""
    load: Load = testbed.run_ranks(runner.record, 1, task, batch)[0]
    return load


def race(
    network: testbed.Network, workers: int, sides: Sequence[Side], load: Load, course: Course
) -> list[Cell]:
    """Runs all `sides` over `network`, in turns, with rank 0 as a server beside the workers.

    A side that fails by a TweedError is a cell that says so; the others go on.

    Raises: RankFailed, NoTestbed as `tweed.testbed`.
    """
    size, job = workers + 1, (sides, load, course)
    with (
        testbed.opened(network, size) as bed,
        testbed.Ranks(runner.take_part, size, *job, backend="tweed", bed=bed) as ranks,
    ):
        by_rank: list[list[Lapped]] = ranks.join()
    return [_cell(side, [rank[place] for rank in by_rank]) for place, side in enumerate(sides)]


def _cell(side: Side, by_rank: Sequence[Lapped]) -> Cell:
    workers = [rank for rank in by_rank if not rank.serves]
    failures = [rank.failed for rank in by_rank if rank.failed]
    return Cell(
        side.label,
        _slowest([rank.steps_s for rank in workers]),
        _slowest([rank.sync_s for rank in workers]),
        sum(rank.contributed_bytes for rank in workers),
        sum(rank.lost_bytes for rank in workers),
        failures[0] if failures else None,
    )


def _slowest(by_rank: Sequence[Sequence[float]]) -> list[float]:
    """Per step; a step that some ranks did not end, as their side failed, is none."""
    return [max(step) for step in zip(*by_rank, strict=False)]
