"""The ranks' part of a contest: real trainings over a shaped network, and laps in turns to time their steps.

Computing is real, on processes that share this machine's cores. The time of a stretch of steps is that of the
slowest rank; evaluations are not timed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tweed.errors import NonFinite
from tweed.strategy import Strategy

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

#: What stands beside a strategy: torch's DDP on Gloo, with its PowerSGD hook, or no exchange at all.
Peer = Literal["ddp", "powersgd", "alone"]
#: Of torch's hook: rank of its matrices, and steps before it begins (it wants 2 or more).
POWERSGD_RANK, POWERSGD_BEGINS = 4, 2
_CHUNK = 250  # test samples at once


@dataclass(frozen=True, slots=True)
class Entrant:
    """One way to train.

    Attributes:
      label: short, for figures.
      how: a strategy, or a peer's name.
      period: steps after which it is where it began: exchange and local steps. Laps and evaluations come
        after whole periods.
      optimizer, lr: "sgd" has a momentum of 0.9. The rate falls to zero along half a cosine.
      warm: steps at least before its laps begin.
    """

    label: str
    how: Strategy | Peer
    period: int = 1
    optimizer: Literal["sgd", "adamw"] = "sgd"
    lr: float = 0.05
    warm: int = 0

    def periods(self, steps: int) -> int:
        """About so many steps, in whole periods: at least one."""
        return max(1, steps // self.period) * self.period


@dataclass(frozen=True, slots=True)
class Course:
    """What is trained, and how long.

    Attributes:
      task: a name in `tweed.train.tasks.TASKS`.
      batch: samples per worker and step.
      steps: of a whole training.
      every: steps between evaluations in the second half, a quarter as many in the first; fewer where periods
        ask for it. 0: at the end alone.
      seed: of model, partition and batches.
      stop: steps after which it ends early; None: it does not.
    """

    task: str = "fashion-mnist"
    batch: int = 32
    steps: int = 512
    every: int = 32
    seed: int = 0
    stop: int | None = None

    @property
    def last(self) -> int:
        """Steps that are made."""
        return self.stop or self.steps

    def next_stop(self, done: int, period: int) -> int:
        """Steps after which the model is evaluated next, when `done` were made."""
        every = self.every * (4 if 2 * done < self.steps else 1) or self.steps
        return min(self.last, done + -(-every // period) * period)


@dataclass(slots=True)
class Learned:
    """One training as rank 0 tells it.

    Attributes:
      curve: steps done, seconds of training, accuracy on all test samples.
      packed_bytes: mean over ranks of what each gave to the network per step; None if it is not told.
      formula_bytes: what the compressor's formula says to that; None where there is none, and for a
        threshold, which as many numbers exceed as it happens.
      link_bytes: mean over ranks of what each link sent per step, with headers; None outside a testbed.
      finish_s: seconds that it took in the end to make one model of all; 0 where all have one.
      diverged: numbers were no longer finite; the curve ends there.
    """

    curve: list[tuple[int, float, float]] = field(default_factory=list)
    packed_bytes: float | None = None
    formula_bytes: float | None = None
    link_bytes: float | None = None
    finish_s: float = 0.0
    diverged: bool = False


@dataclass(slots=True)
class Raced:
    """One entrant's laps as rank 0 tells them: steps and seconds of each.

    Attributes:
      link_bytes: mean over ranks of what each link sent in all laps, with headers.
      finish_s: as in `Learned`.
      chosen: what `compress="auto"` took in the end.
    """

    steps: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    link_bytes: float = 0.0
    finish_s: float = 0.0
    chosen: str | None = None


def learn(rank: int, size: int, entrant: Entrant, course: Course) -> Learned:
    """A whole training."""
    trainer = _Trainer(entrant, course)
    learned, links = Learned(), 0
    seconds = 0.0
    while trainer.done < course.last and not trainer.diverged:
        before = _sent()
        seconds += trainer.stretch(course.next_stop(trainer.done, entrant.period) - trainer.done)
        links += _sent() - before
        learned.curve.append((trainer.done, seconds, trainer.accuracy()))
    learned.diverged = trainer.diverged
    learned.link_bytes = _mean(links) / max(1, trainer.done) or None
    learned.packed_bytes = trainer.packed_bytes()
    learned.formula_bytes = trainer.formula_bytes()
    learned.finish_s = trainer.finish()
    return learned


def race(
    rank: int, size: int, entrants: Sequence[Entrant], course: Course, lap_s: float, laps: int
) -> list[Raced]:
    """All entrants in turns.

    Args:
      lap_s: seconds of a lap, about; it has at least one period.
      laps: of each, after a warm-up.
    """
    trainers = [_Trainer(entrant, course) for entrant in entrants]
    for trainer in trainers:
        trainer.stretch(trainer.entrant.periods(trainer.entrant.warm))
    pace = [trainer.stretch(trainer.entrant.period) / trainer.entrant.period for trainer in trainers]
    raced = [Raced() for _ in entrants]
    for _ in range(laps):
        for trainer, noted, step_s in zip(trainers, raced, pace, strict=True):
            before, steps = _sent(), trainer.entrant.periods(int(lap_s / step_s))
            lap = trainer.stretch(steps)
            if trainer.diverged:
                continue
            noted.seconds.append(lap)
            noted.steps.append(steps)
            noted.link_bytes += _mean(_sent() - before)
    for trainer, noted in zip(trainers, raced, strict=True):
        noted.finish_s, noted.chosen = trainer.finish(), trainer.chosen
    return raced


class _Trainer:
    """One entrant in one rank. The default group must be Gloo's; a strategy gets one of backend tweed."""

    def __init__(self, entrant: Entrant, course: Course) -> None:
        import torch
        import torch.distributed as dist

        from tweed.data import Partition, deal, load
        from tweed.train.batches import Batches
        from tweed.train.tasks import row, task
        from tweed.train.tasks.base import adamw, sgd

        self.entrant, self._course = entrant, course
        self._task, self._arrays = task(course.task), load(row(course.task).data)
        rank, size = dist.get_rank(), dist.get_world_size()
        hands = deal(self._arrays.labels, size, Partition.parse("iid"), course.seed)
        self._batches = Batches(hands[rank], course.batch, course.seed, rank)
        torch.manual_seed(course.seed)
        self._model = self._task.model(self._arrays)
        make = {"sgd": sgd, "adamw": adamw}[entrant.optimizer]
        self._optimizer = make(self._model.parameters(), entrant.lr)
        self.done, self.diverged = 0, False
        self._run: Any = None
        self._module = self._tied(entrant.how)

    def _tied(self, how: Strategy | Peer) -> nn.Module:
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        import tweed

        if isinstance(how, Strategy):
            group = dist.new_group(backend="tweed")
            assert isinstance(group, dist.ProcessGroup)  # this process is one of its members
            self._run = tweed.attach(self._model, self._optimizer, how, group=group)
            return self._model
        if how == "alone":
            return self._model
        module = DistributedDataParallel(self._model)
        if how == "powersgd":
            _power(module)
        return module

    def stretch(self, steps: int) -> float:
        """Takes `steps` steps, or fewer if it diverges. Returns seconds, those of the slowest rank."""
        import torch.distributed as dist

        dist.barrier()
        began = time.monotonic()
        try:
            for _ in range(0 if self.diverged else steps):
                self._step()
        except NonFinite:  # on all ranks at the same step
            self.diverged = True
        return _slowest(time.monotonic() - began)

    def _step(self) -> None:
        import math

        import torch.nn.functional as F

        lr = self.entrant.lr * 0.5 * (1 + math.cos(math.pi * min(1.0, self.done / self._course.steps)))
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        x, y = self._samples(self._arrays.train, self._batches.at(self.done))
        F.cross_entropy(self._module(x), y).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._optimizer.zero_grad()
        self.done += 1

    def _samples(self, split: Any, picked: NDArray[np.int64] | slice) -> tuple[torch.Tensor, torch.Tensor]:
        from tweed.train.tasks.base import targets

        return self._task.inputs(split.x[picked]), targets(split.y[picked])

    def accuracy(self) -> float:
        """Share of all test samples that are classified right; each rank looks at its part of them."""
        import torch
        import torch.distributed as dist

        right, test = torch.zeros(1), self._arrays.test
        self._model.eval()
        with torch.no_grad(), self._one_model():
            for start in range(dist.get_rank() * _CHUNK, len(test), dist.get_world_size() * _CHUNK):
                x, y = self._samples(test, slice(start, start + _CHUNK))
                right += (self._model(x).argmax(1) == y).sum()
        self._model.train()
        dist.all_reduce(right)
        return float(right) / len(test)

    @contextmanager
    def _one_model(self) -> Iterator[None]:
        """Within, the average of all ranks' models, where they differ by design."""
        with nullcontext() if self._run is None else self._run.averaged():
            yield

    @property
    def _forks(self) -> bool:
        return (
            self._run is not None
            and self._run.strategy.memory is not None
            and self._run.strategy.memory.replicas_diverge
        )

    def finish(self) -> float:
        """Makes one model of all. Returns the seconds that this took."""
        import torch.distributed as dist

        if not self._forks or self.diverged:
            return 0.0
        dist.barrier()
        began = time.monotonic()
        self._run.finish()
        return _slowest(time.monotonic() - began)

    @property
    def chosen(self) -> str | None:
        """See `Raced`."""
        return None if self._run is None else self._run.stats.chosen

    def formula_bytes(self) -> float | None:
        """See `Learned`."""
        from tweed.compress import Spec, Threshold

        how = self.entrant.how
        if not isinstance(how, Strategy) or how.memory is None or set(how.memory.parts) != {"main"}:
            return None
        method = how.memory.parts["main"]
        if isinstance(method, Threshold):
            return None
        spec = Spec(tuple(tuple(param.shape) for param in self._model.parameters()))
        return method.packet_bytes(spec) / getattr(how.cadence, "every", 1)

    def packed_bytes(self) -> float | None:
        """See `Learned`."""
        if self._run is not None:
            stats, packs = self._run.stats, self._run.strategy.compress is not None
            return _mean(stats.bytes_packed if packs else stats.bytes_exchanged) / self.done
        if self.entrant.how == "powersgd":
            return None
        gives = self.entrant.how == "ddp"
        return float(gives * sum(4 * param.numel() for param in self._model.parameters()))


def _power(module: DistributedDataParallel) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

    state = PowerSGDState(None, matrix_approximation_rank=POWERSGD_RANK, start_powerSGD_iter=POWERSGD_BEGINS)
    module.register_comm_hook(state, powerSGD_hook)


def _sent() -> int:
    from tweed.testbed import sent_bytes

    return sent_bytes() or 0


def _slowest(seconds: float) -> float:
    import torch
    import torch.distributed as dist

    told = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(told, dist.ReduceOp.MAX)
    return float(told)


def _mean(value: float) -> float:
    import torch
    import torch.distributed as dist

    told = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(told)
    return float(told) / dist.get_world_size()
