"""Whole trainings by virtual workers of this process: what a strategy learns, and what it sends for that.

No network and no clock takes part, so the values do not depend on what else the machine does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tweed.report.notes import Line
from tweed.simulate.flat import Flat
from tweed.simulate.workers import Workers, copies
from tweed.strategy import Strategy
from tweed.train.shard import Shard, cosine, set_lr

#: Steps that one point of a curve stands for.
POINT = 10
#: A training has diverged when its loss is above this, or no number.
FAR = 100.0


@dataclass(frozen=True, slots=True)
class Config:
    """One training.

    Attributes:
      task: a name in `tweed.train.tasks.TASKS`; its optimizer is each worker's.
      strategy: what the workers keep to.
      steps: optimizer steps of each worker.
      batch: samples per worker and step.
      lr: learning rate at the start; it falls to zero along half a cosine, or stays.
      seed: of the model, the partition and the batches.
      workers: how many.
      partition: as for `tweed.data.Partition.parse`.
      test_samples: from the first of the test set.
      falling: whether the learning rate falls.
      every: steps between two evaluations of the average model; 0: at the end alone.
    """

    task: str
    strategy: Strategy
    steps: int
    batch: int
    lr: float
    seed: int
    workers: int = 8
    partition: str = "iid"
    test_samples: int = 2_500
    falling: bool = True
    every: int = 0

    def lr_at(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        return cosine(self.lr, step, self.steps) if self.falling else self.lr


@dataclass(slots=True)
class Outcome:
    """What came of it, as plain values. Bytes are per worker; a share of 1 is a dense exchange every step.

    Attributes:
      accuracy, test_loss: of the average model at the end; after a divergence, 0 and None.
      local_accuracy: of the first worker's own model before a last exchange.
      curve: steps done, test loss and accuracy of the average model at each evaluation before the end.
      losses: mean training loss of each `POINT` steps.
      up_share, down_share: of bytes sent, and received.
      up_shares: of bytes sent in each `POINT` steps, but for the last.
      diverged: whether training ended early because of that.
    """

    accuracy: float = 0.0
    test_loss: float | None = None
    local_accuracy: float = 0.0
    curve: list[tuple[int, float, float]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    up_share: float = 0.0
    down_share: float = 0.0
    up_shares: list[float] = field(default_factory=list)
    diverged: bool = False


def train(config: Config, watch: Callable[[int, Cluster], None] = lambda step, cluster: None) -> Outcome:
    """Trains and evaluates.

    Args:
      watch: called before each step, with its number.

    Cost: backward passes of all workers, one after the other, on one thread.
    """
    torch.set_num_threads(1)
    cluster = Cluster(config)
    traffic, dense = cluster.workers.traffic, 4.0 * cluster.workers.all[0].flat.spec.numel
    outcome, recent, sent = Outcome(), [], []
    for step in range(config.steps):
        watch(step, cluster)
        if config.every and step and step % config.every == 0:
            outcome.curve.append((step, *cluster.score(cluster.workers.average())))
        if step % POINT == 0:
            sent.append(traffic.up_bytes / dense)
        loss = cluster.step(step)
        if not loss < FAR:
            outcome.diverged = True
            break
        recent.append(loss)
        if len(recent) == POINT:
            outcome.losses.append(sum(recent) / POINT)
            recent.clear()
    outcome.up_shares = [(after - before) / POINT for before, after in pairwise(sent)]
    outcome.up_share = traffic.up_bytes / (dense * config.steps)
    outcome.down_share = traffic.down_bytes / (dense * config.steps)
    if not outcome.diverged:
        outcome.local_accuracy = cluster.score(cluster.workers.all[0].model)[1]
        outcome.test_loss, outcome.accuracy = cluster.score(cluster.workers.average())
    return outcome


def line(which: Mapping[str, Any], config: Config) -> Line:
    """Trains. Returns the facts `which` and the outcome, for notes."""
    return {**which, "steps": config.steps, "batch": config.batch, **asdict(train(config))}


class Cluster:
    """The workers of a training with their data."""

    def __init__(self, config: Config) -> None:
        self._config = config
        dealt = (config.workers, config.partition, config.seed)
        self._shards = [Shard(config.task, config.batch, rank, *dealt) for rank in range(config.workers)]
        shard = self._shards[0]
        torch.manual_seed(config.seed)
        model = shard.model()
        self.workers = Workers(
            model, lambda params: shard.task.optimizer(params, config.lr), config.strategy, config.workers
        )

    def step(self, step: int) -> float:
        """One step of all workers. Returns the mean loss."""
        for worker in self.workers.all:
            set_lr(worker.optimizer, self._config.lr_at(step))
        return self.workers.step(
            lambda rank, model: self._shards[rank].loss(model, self._shards[rank].batch(step))
        )

    def gradient(self, point: Tensor) -> Tensor:
        """`[numel]`, the gradient of the loss over the first 256 samples, at a point `[numel]`."""
        (model, flat), shard = self._probe, self._shards[0]
        flat.values.copy_(point)
        flat.grads.zero_()
        loss = shard.loss(model, np.arange(min(256, len(shard.arrays.train))))
        loss.backward()  # type: ignore[no-untyped-call]
        return flat.grads.clone()

    @functools.cached_property
    def _probe(self) -> tuple[nn.Module, Flat]:
        [model] = copies(self.workers.all[0].model, 1)
        return model, Flat(model)

    def score(self, model: nn.Module) -> tuple[float, float]:
        """Test loss and accuracy."""
        loss, right, count = self._shards[0].scores(model, self._config.test_samples).tolist()
        return loss / count, right / count
