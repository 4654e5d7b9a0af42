"""What each rank does in a race; see `race`. It runs in the ranks' processes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import environ
from typing import TYPE_CHECKING, Any

from tweed.errors import TweedError
from tweed.strategy import Strategy

if TYPE_CHECKING:
    from torch import nn

#: A step that takes longer is counted even if it is the first after a pause.
SLOW_S = 2.0


@dataclass(frozen=True, slots=True)
class Load:
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
        sizes = [4] * len(self.shapes)
        for place, shape in enumerate(self.shapes):
            for length in shape:
                sizes[place] *= length
        return sum(sizes)


@dataclass(frozen=True, slots=True)
class Side:
    """One way to exchange gradients.

    Attributes:
      label: short, for figures.
      strategy: must have a group of its own, see `tweed.attach`.
      environment: what `TWEED_` settings it has beside those of the testbed.
    """

    label: str
    strategy: Strategy
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Course:
    """How long a side is looked at.

    Attributes:
      seconds: of measured steps, about; at least one step per round is made whatever it takes.
      rounds: turns of each side, 1 or more.
      steps: per side, at most.
    """

    seconds: float
    rounds: int = 3
    steps: int = 60


@dataclass(slots=True)
class Lapped:
    """What one rank saw of one side: seconds of steps and exchanges, bytes, and why it ended."""

    serves: bool = False
    steps_s: list[float] = field(default_factory=list)
    sync_s: list[float] = field(default_factory=list)
    contributed_bytes: int = 0
    lost_bytes: int = 0
    failed: str | None = None


def record(rank: int, size: int, name: str, batch: int) -> Load:
    """Measures the model of task `name`; see `race.record`."""
    import torch.nn.functional as F

    from tweed.data import load
    from tweed.train.tasks import row, task
    from tweed.train.tasks.base import targets

    arrays, found = load(row(name).data), task(name)
    model = found.model(arrays)
    x, y = found.inputs(arrays.train.x[:batch]), targets(arrays.train.y[:batch])
    taken = []
    for _ in range(9):
        began = time.monotonic()
        F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        taken.append(time.monotonic() - began)
    shapes = tuple(tuple(param.shape) for param in model.parameters())
    return Load(shapes, statistics.median(taken), batch)


def take_part(rank: int, size: int, sides: Sequence[Side], load: Load, course: Course) -> list[Lapped]:
    """Runs all sides in turns. Returns what this rank saw, by side."""
    import torch.distributed as dist

    runners = [_Runner(side, load) for side in sides]
    for round_ in range(course.rounds):
        for runner in runners:
            dist.barrier()
            runner.lap(round_, course)
    dist.barrier()
    return [runner.lapped for runner in runners]


class _Runner:
    """One side in one rank."""

    def __init__(self, side: Side, load: Load) -> None:
        import torch
        from torch import nn

        import tweed

        torch.manual_seed(0)
        self._model = nn.ParameterList([nn.Parameter(torch.zeros(shape)) for shape in load.shapes])
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.0)
        with _set(side.environment):
            self._run = tweed.attach(self._model, self._optimizer, side.strategy)
        self._compute_s = load.compute_s
        self.lapped = Lapped(serves=self._run.serves)

    def lap(self, round_: int, course: Course) -> None:
        """One turn, unless the side has failed before on any rank."""
        if self._all(self.lapped.failed is not None):
            return
        try:
            first = self._step()
            more = self._agree(self._more(first, course))
            if not more or first[0] > SLOW_S:
                self._note(first)
            for _ in range(more):
                self._note(self._step())
        except TweedError as error:
            self.lapped.failed = str(error)
        stats = self._run.stats
        self.lapped.contributed_bytes, self.lapped.lost_bytes = stats.bytes_contributed, stats.bytes_lost

    @staticmethod
    def _more(first: tuple[float, float], course: Course) -> int:
        wanted = course.seconds / course.rounds / first[0]
        return min(int(wanted), course.steps // course.rounds)

    def _agree(self, number: int) -> int:
        """Rank 0's number."""
        import torch
        import torch.distributed as dist

        told = torch.tensor([number])
        dist.broadcast(told, src=0)
        return int(told)

    def _all(self, failed: bool) -> bool:
        import torch
        import torch.distributed as dist

        told = torch.tensor([int(failed)])
        dist.all_reduce(told, dist.ReduceOp.MAX)
        return bool(told)

    def _step(self) -> tuple[float, float]:
        """Seconds of a step and of its exchange."""
        began = time.monotonic()
        if self._run.serves:
            self._run.serve()
            return time.monotonic() - began, 0.0
        time.sleep(self._compute_s)
        computed = time.monotonic()
        _loss(self._model).backward()
        synced = time.monotonic()
        self._optimizer.step()
        self._optimizer.zero_grad()
        return time.monotonic() - began, synced - computed

    def _note(self, step: tuple[float, float]) -> None:
        self.lapped.steps_s.append(step[0])
        self.lapped.sync_s.append(step[1])


def _loss(model: nn.ParameterList) -> Any:
    """Something that every parameter has a gradient of, and that costs next to nothing."""
    return sum(param.sum() for param in model)


@contextmanager
def _set(values: Mapping[str, str]) -> Iterator[None]:
    before = dict(environ)
    environ.update(values)
    try:
        yield
    finally:
        environ.clear()
        environ.update(before)
