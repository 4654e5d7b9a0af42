"""Members that are killed and come back, in a testbed: how late the next step is, and what a join costs.

Each rank's life is a child process (`tweed.testbed.lives`); gradients are computed by a sleep. Times are of
the system's monotonic clock, so those of one process can be taken from those of another.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from bench.run import Row, quantile
from bench.units import grid, seconds, size
from tweed.data.sampler import GlobalOrder, Sampler
from tweed.elastic import ElasticRun
from tweed.errors import NoTestbed
from tweed.experiments.watched_members import Watched, Written, control
from tweed.files import write_atomic
from tweed.testbed import Network, Ranks, opened
from tweed.testbed.lives import kill, lived

KILLS, JOIN = "members killed", "members that join"
#: A step ends so much later than one that nobody is lost in, at most: the median, and always.
GOAL_S, GOAL_MOST_S = 0.15, 1.0
#: A join makes a step at most so many times as long (median), and the longest at most such a share of a copy
#: that all wait for.
GOAL_STEP, GOAL_PAUSE = 1.3, 1 / 3
_BATCH = 64
_NETWORK = Network.parse("rate=100mbit")


@dataclass(frozen=True, slots=True)
class Scope:
    """What is measured.

    Attributes:
      workers: for each, a run with kills.
      kills: in each of them.
      numel: of the gradient, with kills and with a join.
      compute_s: of a step, with kills and with a join.
    """

    workers: tuple[int, ...]
    kills: int
    numel: tuple[int, int]
    compute_s: tuple[float, float]


FULL = Scope((4, 8), 50, (250_000, 6_250_000), (0.1, 1.0))
QUICK = Scope((4,), 5, (250_000, 625_000), (0.1, 0.3))


@dataclass(frozen=True, slots=True)
class Job:
    """What each life trains, and where it writes what happens."""

    folder: Path
    founders: int
    most: int
    numel: int
    compute_s: float


def rows(scope: Scope) -> Iterator[Row]:
    """A row for each number of workers, and one for the join; without a testbed, one that says why."""
    try:
        for workers in scope.workers:
            print(f"  {workers} workers, {scope.kills} kills", file=sys.stderr, flush=True)
            yield _kills(workers, scope)
        print("  a join", file=sys.stderr, flush=True)
        yield _join(scope)
    except NoTestbed as error:
        yield {"part": "no testbed", "network": str(_NETWORK), "why": str(error)}


# What a rank does.


def _rank(rank: int, size: int, job: Job) -> Any:
    """Its lives; a rank that is no founder begins when it is told to."""
    while rank >= job.founders and not (job.folder / "join").exists():
        time.sleep(0.05)
    return lived(_life, job.folder, rank, job)


def _life(life: int, rank: int, job: Job) -> float:
    """Trains until it is over, and writes each step down. Returns how long a copy takes that all wait for."""
    elastic = control(life, rank, job.founders, job.most, job.folder)
    model = torch.nn.ParameterList([torch.zeros(job.numel)])
    optimizer = torch.optim.Adam(model, lr=1e-3)
    keep = {"model": model, "optimizer": optimizer}
    run = ElasticRun(elastic, Sampler(GlobalOrder(60_000), _BATCH), keep)
    gradient = torch.ones(job.numel)

    def computed(samples: Sequence[int]) -> Tensor:
        time.sleep(job.compute_s * len(samples) * len(run.members) / _BATCH)
        return gradient

    with Written(job.folder, rank, life) as written:
        while not written.over(run.counted):
            begin = time.monotonic()
            model[0].grad = run.step(computed)
            optimizer.step()
            written.step(run, begin)
    copied_s = _copied_s(4 * model[0].numel() * 4)
    run.finish()
    elastic.close()
    return copied_s


def _copied_s(count: int) -> float:
    """All members wait for rank 0 to broadcast so many bytes."""
    state = torch.zeros(count, dtype=torch.uint8)
    dist.barrier()
    begin = time.monotonic()
    dist.broadcast(state, 0)
    dist.barrier()
    return time.monotonic() - begin


# What the launcher does.


def _run(job: Job, drive: Callable[[Watched], Row]) -> Row:
    with opened(_NETWORK, job.most) as bed, Ranks(_rank, job.most, job, bed=bed) as ranks:
        return drive(Watched(ranks, job.folder))


def _kills(workers: int, scope: Scope) -> Row:
    draw = random.Random(workers)

    def drive(watched: Watched) -> Row:
        late, rejoined, plain = [], [], []
        for number in range(scope.kills):
            watched.settled(workers, time.monotonic() if number else 0.0)
            plain += [step.end - step.begin for step in watched.steps(0)[-3:]]
            victim = number % workers
            time.sleep(draw.uniform(0.0, 0.3))
            since = time.monotonic()
            kill(watched.folder, victim)
            late.append(_late(watched, victim, workers, since))
            watched.settled(workers, since, 1)
            rejoined.append(time.monotonic() - since)
        watched.end()
        step_s = statistics.median(plain)
        late = sorted(one - step_s for one in late)
        return {
            "part": KILLS, "side": f"{workers} workers", "kills": scope.kills, "bytes": 4 * scope.numel[0],
            "step_s": step_s, "late_median_s": statistics.median(late), "late_p99_s": quantile(late, 0.99),
            "late_most_s": late[-1], "rejoined_median_s": statistics.median(rejoined),
        }  # fmt: skip

    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder), workers, workers, scope.numel[0], scope.compute_s[0])
        return _run(job, drive)


def _late(watched: Watched, victim: int, workers: int, since: float) -> float:
    """From the kill to the end of the first step after it that all survivors have counted."""
    survivors = [rank for rank in range(workers) if rank != victim]
    ends: list[float] = []

    def counted() -> bool:
        found = [
            [step for step in watched.steps(rank) if step.end > since and step.members < workers]
            for rank in survivors
        ]
        if all(found):
            ends.append(max(steps[0].end for steps in found))
        return bool(ends)

    watched.wait(counted)
    return ends[0] - since


def _join(scope: Scope) -> Row:
    founders = 4

    def drive(watched: Watched) -> Row:
        watched.wait(lambda: all(len(watched.steps(rank)) >= 8 for rank in range(founders)))
        plain = [step.end - step.begin for step in watched.steps(0)[2:]]
        begin = time.monotonic()
        write_atomic(watched.folder / "join", "")
        watched.settled(founders + 1, begin, 2)
        copied_s = watched.end()
        during = [step for step in watched.steps(0) if step.end > begin]
        together = next(step.end for step in during if step.members > founders)
        spans = [step.end - step.begin for step in during if step.end <= together]
        return {
            "part": JOIN, "side": f"{founders} workers and one", "bytes": 4 * scope.numel[1],
            "plain_s": statistics.median(plain), "step_s": statistics.median(spans), "steps": len(spans),
            "longest_s": max(spans), "joined_s": together - begin, "copied_s": max(copied_s),
        }  # fmt: skip

    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder), founders, founders + 1, scope.numel[1], scope.compute_s[1])
        return _run(job, drive)


def table(rows: Sequence[Row]) -> str:
    """Kills, and the join."""
    kills = [
        (
            row["side"], size(row["bytes"]), str(row["kills"]), seconds(row["step_s"]),
            *(f"{row[what] * 1e3:+.0f} ms" for what in ("late_median_s", "late_p99_s", "late_most_s")),
            seconds(row["rejoined_median_s"]),
        )
        for row in rows
        if row["part"] == KILLS
    ]  # fmt: skip
    head = ("", "gradient", "kills", "step", "later: median", "p99", "most", "the killed is in again after")
    joins = [
        (
            row["side"], size(row["bytes"]), seconds(row["plain_s"]),
            f"{seconds(row['step_s'])} ({row['step_s'] / row['plain_s']:.2f}x, {row['steps']} steps)",
            seconds(row["longest_s"]), seconds(row["copied_s"]), seconds(row["joined_s"]),
        )
        for row in rows
        if row["part"] == JOIN
    ]  # fmt: skip
    other = (
        "", "gradient", "step before", "median step while it joins", "longest", "a copy that all wait for",
        "in after",
    )  # fmt: skip
    words = (
        f"Members behind links of 100 Mbit/s, killed by SIGKILL and started again. The step within which one "
        f"is lost ends later than others; the goal is {GOAL_S * 1e3:.0f} ms (median), {GOAL_MOST_S:.0f} s "
        "(most). Adam's state is twice the parameters; a join gives both, and the last result."
    )
    if not (kills or joins):
        return ""
    return f"## Members that come and go\n\n{words}\n\n{grid(head, kills)}\n\n{grid(other, joins)}"
