"""How long an exchange takes beside others: the same gradients over the same network, in turns.

Every side has a group of its own among the same processes. Computing is a sleep of recorded length: processes
that share a few cores would otherwise wait for those, and not for the network.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import tweed
from tweed import testbed
from tweed.errors import TweedError
from tweed.forkserver.server import environment
from tweed.strategy import Strategy
from tweed.systems.harness.barriers import FileBarrier
from tweed.systems.harness.benchmark import Config, Contender, benchmark
from tweed.train.shard import Shard


@dataclass(frozen=True, slots=True)
class Workload:
    """What one worker does in a step.

    Attributes:
      shapes: of the parameters, float32, in the model's order.
      compute_s: seconds that forward and backward pass take one process alone.
      batch: samples per worker and step.
    """

    shapes: tuple[tuple[int, ...], ...]
    compute_s: float
    batch: int

    @property
    def gradient_bytes(self) -> int:
        """Bytes of one worker's gradients."""
        return sum(4 * math.prod(shape) for shape in self.shapes)


@dataclass(frozen=True, slots=True)
class Side:
    """One way to exchange gradients.

    Attributes:
      label: short, for tables.
      strategy: must have a group of its own, see `tweed.attach`.
      environment: what `TWEED_` settings it has beside those of the testbed.
    """

    label: str
    strategy: Strategy
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exchanged:
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


@dataclass(slots=True)
class OfRank:
    """What one rank saw of one side: seconds of steps and exchanges, bytes, and why it ended."""

    serves: bool = False
    steps_s: list[float] = field(default_factory=list)
    sync_s: list[float] = field(default_factory=list)
    contributed_bytes: int = 0
    lost_bytes: int = 0
    failed: str | None = None


def record(task: str, batch: int) -> Workload:
    """Measures a task's model in one process that has the machine to itself. Cost: about a second."""
    workload: Workload = testbed.run_ranks(_record, 1, task, batch)[0]
    return workload


def _record(rank: int, size: int, task: str, batch: int) -> Workload:
    shard = Shard(task, batch, rank, size)
    model, picked, seconds = shard.model(), shard.batch(0), []
    for _ in range(9):
        began = time.monotonic()
        shard.loss(model, picked).backward()  # type: ignore[no-untyped-call]
        seconds.append(time.monotonic() - began)
    shapes = tuple(tuple(param.shape) for param in model.parameters())
    return Workload(shapes, statistics.median(seconds), batch)


def exchange(
    network: testbed.Network, workers: int, sides: Sequence[Side], workload: Workload, config: Config
) -> list[Exchanged]:
    """Runs all `sides` over `network`, in turns, with rank 0 as a server beside the workers.

    A side that fails by a TweedError is noted as failed; the others go on.

    Raises: RankFailed, NoTestbed as `tweed.testbed`.
    """
    size = workers + 1
    with (
        TemporaryDirectory() as folder,
        testbed.opened(network, size) as bed,
        testbed.Ranks(_in_turns, size, sides, workload, config, Path(folder), bed=bed) as ranks,
    ):
        by_rank: list[list[OfRank]] = ranks.join()
    return [
        of_ranks(side.label, found) for side, found in zip(sides, zip(*by_rank, strict=True), strict=True)
    ]


def of_ranks(label: str, by_rank: Sequence[OfRank]) -> Exchanged:
    """Puts together what ranks saw of one side; a step that some did not end, as it failed, is none."""
    workers = [rank for rank in by_rank if not rank.serves]
    failures = [rank.failed for rank in by_rank if rank.failed]
    return Exchanged(
        label,
        [max(step) for step in zip(*(rank.steps_s for rank in workers), strict=False)],
        [max(step) for step in zip(*(rank.sync_s for rank in workers), strict=False)],
        sum(rank.contributed_bytes for rank in workers),
        sum(rank.lost_bytes for rank in workers),
        failures[0] if failures else None,
    )


def _in_turns(
    rank: int, size: int, sides: Sequence[Side], workload: Workload, config: Config, folder: Path
) -> list[OfRank]:
    from torch._C._distributed_c10d import FileStore

    # What is said of the measurement goes through files: over such networks it would take longer than steps.
    store = FileStore(str(folder / "store"), size)
    dist.init_process_group("tweed", store=store, rank=rank, world_size=size)
    barrier = FileBarrier(folder / "barrier", rank, size)
    steppers = [_begun(side, workload, barrier) for side in sides]
    contenders = [Contender(one.label, one.step) for one in steppers if isinstance(one, _Stepper)]
    measured = benchmark(contenders, config, barrier=barrier)
    seen = []
    for stepper in steppers:
        if isinstance(stepper, str):
            seen.append(OfRank(failed=stepper or None))
            continue
        found, stats = measured[stepper.label], stepper.run.stats
        steps_s = [call_s for one in found.rounds for call_s in one.calls_s]
        sync_s = [sync_s for one in found.rounds for sync_s in one.returned]
        lost = (stats.bytes_contributed, stats.bytes_lost)
        seen.append(OfRank(stepper.run.serves, steps_s, sync_s, *lost, found.failed))
    dist.destroy_process_group()
    return seen


def _begun(side: Side, workload: Workload, barrier: FileBarrier) -> _Stepper | str:
    """A side whose ranks all have the same parameters; or why this rank cannot begin, if it is its fault."""
    failed = ""
    try:
        stepper = _Stepper(side, workload)
    except TweedError as error:
        failed = str(error)
    if math.isinf(barrier.slowest(math.inf if failed else 0.0)):
        return failed
    return stepper


class _Stepper:
    """One side in one rank."""

    def __init__(self, side: Side, workload: Workload) -> None:
        torch.manual_seed(0)
        self.label = side.label
        self._model = nn.ParameterList([nn.Parameter(torch.zeros(shape)) for shape in workload.shapes])
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.0)
        with environment(dict(side.environment)):
            self.run = tweed.attach(self._model, self._optimizer, side.strategy)
        self._compute_s = workload.compute_s

    def step(self) -> float:
        """A step. Returns the seconds of its exchange."""
        if self.run.serves:
            self.run.serve()
            return 0.0
        time.sleep(self._compute_s)
        computed = time.monotonic()
        # Something that every parameter has a gradient of, and that costs next to nothing.
        loss: Any = sum(param.sum() for param in self._model)
        loss.backward()
        exchanged = time.monotonic()
        self._optimizer.step()
        self._optimizer.zero_grad()
        return exchanged - computed
