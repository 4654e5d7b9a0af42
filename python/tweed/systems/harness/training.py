"""The ranks' part of a comparison of trainings: whole ones over a shaped network, and steps timed in turns.

Computing is real, on processes that share this machine's cores. The time of a stretch of steps is that of the
slowest rank; evaluations are not timed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import tweed
from tweed.compress import Spec, Threshold
from tweed.errors import NonFinite
from tweed.strategy import Strategy
from tweed.systems.harness import benchmark
from tweed.testbed import sent_bytes
from tweed.train.shard import Shard, cosine, optimizer_step, set_lr
from tweed.train.tasks.base import adamw, sgd

#: What stands beside a strategy: torch's DDP on Gloo, with its hooks for 16 bits or PowerSGD, or no exchange.
Peer = Literal["ddp", "bf16", "powersgd", "alone"]
#: Of torch's hook: rank of its matrices, and steps before it begins (it wants 2 or more).
POWERSGD_RANK, POWERSGD_BEGINS = 4, 2


@dataclass(frozen=True, slots=True)
class Method:
    """One way to train.

    Attributes:
      key: its name in notes; no other has it.
      how: a strategy, or a peer's name.
      period: steps after which it is where it began: exchange and local steps. Rounds and evaluations come
        after whole periods.
      optimizer, lr: "sgd" has a momentum of 0.9. The rate falls to zero along half a cosine.
      warm: steps at least before its steps are timed.
    """

    key: str
    how: Strategy | Peer
    period: int = 1
    optimizer: Literal["sgd", "adamw"] = "sgd"
    lr: float = 0.05
    warm: int = 0


@dataclass(frozen=True, slots=True)
class Config:
    """What is trained, and how long.

    Attributes:
      task: a name in `tweed.train.tasks.TASKS`.
      batch: samples per worker and step.
      steps: of a whole training.
      every: steps between evaluations in the second half, a quarter as many in the first; fewer where periods
        ask for it. 0: at the end alone.
      seed: of model, partition and batches.
      stop: steps after which it ends early; None: it does not.
      tested: so many of the test samples are evaluated, the first ones; None: all.
    """

    task: str = "fashion-mnist"
    batch: int = 32
    steps: int = 512
    every: int = 32
    seed: int = 0
    stop: int | None = None
    tested: int | None = None

    @property
    def last(self) -> int:
        """Steps that are made."""
        return self.stop or self.steps

    def next_stop(self, done: int, period: int) -> int:
        """Steps after which the model is evaluated next, when `done` were made."""
        every = self.every * (4 if 2 * done < self.steps else 1) or self.steps
        return min(self.last, done + -(-every // period) * period)


@dataclass(slots=True)
class Trained:
    """What came of one training; equal on all ranks.

    Attributes:
      curve: steps done, seconds of training, accuracy on the test samples.
      packed_bytes: mean over ranks of what each gave to the network per step; None if it is not known.
      formula_bytes: what the compressor's formula makes of that; None where there is none, and for a
        threshold, which as many values exceed as it happens.
      link_bytes: mean over ranks of what each link sent per step, with headers; None outside a testbed.
      finish_s: seconds that it took in the end to make one model of all; 0 where all have one.
      diverged: values were no longer finite; the curve ends there.
    """

    curve: list[tuple[int, float, float]] = field(default_factory=list)
    packed_bytes: float | None = None
    formula_bytes: float | None = None
    link_bytes: float | None = None
    finish_s: float = 0.0
    diverged: bool = False


@dataclass(slots=True)
class Timed:
    """One method's rounds; equal on all ranks: steps and seconds of each.

    Attributes:
      link_bytes: mean over ranks of what each link sent in all rounds, with headers.
      finish_s: as in `Trained`.
      chosen: what `compress="auto"` took in the end.
    """

    steps: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    link_bytes: float = 0.0
    finish_s: float = 0.0
    chosen: str | None = None


def train(rank: int, size: int, method: Method, config: Config) -> Trained:
    """Trains once, from start to end."""
    trainer = _Trainer(method, config)
    found, links, seconds = Trained(), 0, 0.0
    while trainer.done < config.last and not trainer.diverged:
        before = sent_bytes() or 0
        seconds += trainer.advance(config.next_stop(trainer.done, method.period) - trainer.done)
        links += (sent_bytes() or 0) - before
        found.curve.append((trainer.done, seconds, trainer.accuracy()))
    found.diverged = trainer.diverged
    found.link_bytes = _mean(links) / max(1, trainer.done) or None
    found.packed_bytes = trainer.packed_bytes()
    found.formula_bytes = trainer.formula_bytes()
    found.finish_s = trainer.finish()
    return found


def time_steps(
    rank: int, size: int, methods: Sequence[Method], config: Config, rounds: benchmark.Config
) -> list[Timed]:
    """All methods in turns; a round in which one diverges does not count, nor do later ones."""
    trainers = [_Trainer(method, config) for method in methods]
    measured = benchmark.benchmark([trainer.contender() for trainer in trainers], rounds)
    found = []
    for trainer in trainers:
        mine = measured[trainer.method.key]
        whole = mine.rounds if mine.failed is None else mine.rounds[:-1]
        trainer.diverged = mine.failed is not None
        timed = Timed([len(one.calls_s) for one in whole], [_slowest(sum(one.calls_s)) for one in whole])
        timed.link_bytes = _mean(sum(one.sent_bytes or 0 for one in whole))
        timed.finish_s, timed.chosen = trainer.finish(), trainer.chosen
        found.append(timed)
    return found


class _Trainer:
    """One method in one rank. The default group must be Gloo's; a strategy gets one of backend tweed."""

    def __init__(self, method: Method, config: Config) -> None:
        self.method, self._config = method, config
        self._rank, self._size = dist.get_rank(), dist.get_world_size()
        self._shard = Shard(config.task, config.batch, self._rank, self._size, seed=config.seed)
        torch.manual_seed(config.seed)
        self._model = self._shard.model()
        make = {"sgd": sgd, "adamw": adamw}[method.optimizer]
        self._optimizer = make(self._model.parameters(), method.lr)
        self.done, self.diverged = 0, False
        self._run: Any = None
        self._module = self._exchanging(method.how)

    def _exchanging(self, how: Strategy | Peer) -> nn.Module:
        if isinstance(how, Strategy):
            group = dist.new_group(backend="tweed")
            assert isinstance(group, dist.ProcessGroup)  # this process is one of its members
            self._run = tweed.attach(self._model, self._optimizer, how, group=group)
            return self._model
        if how == "alone":
            return self._model
        # With several buckets torch's PowerSGD begins collectives in threads, in no order that ranks have in
        # common, and Gloo ends the process: so there is one bucket.
        module = DistributedDataParallel(self._model, bucket_cap_mb=500 if how == "powersgd" else None)
        if how == "bf16":
            module.register_comm_hook(None, bf16_compress_hook)
        if how == "powersgd":
            state = PowerSGDState(None, POWERSGD_RANK, POWERSGD_BEGINS)
            module.register_comm_hook(state, powerSGD_hook)
        return module

    def contender(self) -> benchmark.Contender:
        """Its steps, for a benchmark."""
        return benchmark.Contender(self.method.key, self._step, self.method.period, self.method.warm)

    def advance(self, steps: int) -> float:
        """Takes `steps` steps, or fewer if it diverges. Returns seconds, those of the slowest rank."""
        dist.barrier()
        began = time.monotonic()
        try:
            for _ in range(steps):
                self._step()
        except NonFinite:  # on all ranks at the same step
            self.diverged = True
        return _slowest(time.monotonic() - began)

    def _step(self) -> None:
        set_lr(self._optimizer, cosine(self.method.lr, self.done, self._config.steps))
        optimizer_step(self._optimizer, lambda: self._shard.loss(self._module, self._shard.batch(self.done)))
        self.done += 1

    def accuracy(self) -> float:
        """Share of predictions for the test samples that are right; each rank makes its part of them."""
        count = self._config.tested or len(self._shard.arrays.test)
        self._model.eval()
        # Models that differ by design are judged by their average.
        with nullcontext() if self._run is None else self._run.averaged():
            _, *counts = self._shard.scores(self._model, count, self._rank, self._size)
        self._model.train()
        found = torch.stack(counts)
        dist.all_reduce(found)
        right, predictions = found.tolist()
        return float(right / predictions)

    def finish(self) -> float:
        """Makes one model of all. Returns the seconds that this took."""
        memory = None if self._run is None else self._run.strategy.memory
        if memory is None or not memory.replicas_diverge or self.diverged:
            return 0.0
        dist.barrier()
        began = time.monotonic()
        self._run.finish()
        return _slowest(time.monotonic() - began)

    @property
    def chosen(self) -> str | None:
        """What `compress="auto"` has chosen so far; None where nothing is chosen."""
        return None if self._run is None else self._run.stats.chosen

    def formula_bytes(self) -> float | None:
        """The bytes per step by the compressor's formula; None where there is none."""
        how = self.method.how
        if not isinstance(how, Strategy) or how.memory is None or set(how.memory.parts) != {"main"}:
            return None
        codec = how.memory.parts["main"]
        if isinstance(codec, Threshold):
            return None
        spec = Spec(tuple(tuple(param.shape) for param in self._model.parameters()))
        return codec.packet_bytes(spec) / getattr(how.cadence, "every", 1)

    def packed_bytes(self) -> float | None:
        """The mean bytes per step that ranks gave to the network; None if it is not known."""
        if self._run is not None:
            stats, packs = self._run.stats, self._run.strategy.compress is not None
            return _mean(stats.bytes_packed if packs else stats.bytes_exchanged) / self.done
        if self.method.how == "powersgd":
            return None
        each = {"ddp": 4.0, "bf16": 2.0}.get(str(self.method.how), 0.0)
        return each * sum(param.numel() for param in self._model.parameters())


def _slowest(seconds: float) -> float:
    most = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return float(most)


def _mean(value: float) -> float:
    total = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(total)
    return float(total) / dist.get_world_size()
