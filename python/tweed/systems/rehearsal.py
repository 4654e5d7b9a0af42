"""Whole trainings by virtual workers of this process: what a strategy learns, and what it says for that.

No network and no clock takes part, so figures do not depend on what else the machine does.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from tweed.data import Arrays, Partition, Split, deal, load
from tweed.simulate.flat import Flat
from tweed.simulate.workers import Workers, copies
from tweed.strategy import Strategy
from tweed.train.batches import Batches
from tweed.train.tasks import row, task
from tweed.train.tasks.base import Task, targets

#: Steps whose losses are averaged into one point of a curve.
POINT = 10
#: A training has diverged when its loss is above this, or no number.
FAR = 100.0
_CHUNK = 250


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """One training.

    Attributes:
      task: a name in `tweed.train.tasks.TASKS`; its optimizer is each worker's.
      strategy: what is walked.
      steps: optimizer steps of each worker.
      batch: samples per worker and step.
      lr: learning rate at the start; it falls to zero along half a cosine, or stays.
      seed: of the model, the partition and the batches.
      workers: how many.
      partition: as for `tweed.data.Partition.parse`.
      test_samples: from the first of the test set.
      falling: whether the learning rate falls.
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

    def lr_at(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        return self.lr * 0.5 * (1.0 + math.cos(math.pi * step / self.steps)) if self.falling else self.lr


@dataclass(slots=True)
class Outcome:
    """What came of it, as plain values.

    Attributes:
      accuracy, test_loss: of the average model at the end; after a divergence, 0 and None.
      local_accuracy: of the first worker's own model before a last exchange.
      losses: mean training loss of each `POINT` steps.
      up_share, down_share: bytes that a worker said, and was told; 1 is a dense exchange every step.
      diverged: whether training ended early because of that.
    """

    accuracy: float = 0.0
    test_loss: float | None = None
    local_accuracy: float = 0.0
    losses: list[float] = field(default_factory=list)
    up_share: float = 0.0
    down_share: float = 0.0
    diverged: bool = False


def rehearse(lesson: Rehearsal, watch: Callable[[int, Room], None] = lambda step, room: None) -> Outcome:
    """Trains and evaluates.

    Args:
      watch: called before each step, with its number.

    Cost: backward passes of all workers, one after the other, on one thread.
    """
    torch.set_num_threads(1)
    room = Room(lesson)
    outcome, recent = Outcome(), []
    for step in range(lesson.steps):
        watch(step, room)
        loss = room.step(step)
        if not loss < FAR:
            outcome.diverged = True
            break
        recent.append(loss)
        if len(recent) == POINT:
            outcome.losses.append(sum(recent) / POINT)
            recent.clear()
    _account(outcome, room.workers, lesson)
    if not outcome.diverged:
        outcome.local_accuracy = room.score(room.workers.all[0].model)[1]
        outcome.test_loss, outcome.accuracy = room.score(room.workers.average())
    return outcome


def _account(outcome: Outcome, workers: Workers, lesson: Rehearsal) -> None:
    dense = 4.0 * workers.all[0].flat.spec.numel * lesson.steps
    outcome.up_share = workers.traffic.up_bytes / dense
    outcome.down_share = workers.traffic.down_bytes / dense


class Room:
    """The workers of a training with their data."""

    def __init__(self, lesson: Rehearsal) -> None:
        self._lesson = lesson
        self._arrays, self._task = _loaded(row(lesson.task).data), task(lesson.task)
        torch.manual_seed(lesson.seed)
        model = self._task.model(self._arrays)
        self.workers = Workers(
            model, lambda params: self._task.optimizer(params, lesson.lr), lesson.strategy, lesson.workers
        )
        hands = deal(self._arrays.labels, lesson.workers, Partition.parse(lesson.partition), lesson.seed)
        self._batches = [Batches(hand, lesson.batch, lesson.seed, rank) for rank, hand in enumerate(hands)]

    def step(self, step: int) -> float:
        """One step of all workers. Returns the mean loss."""
        for worker in self.workers.all:
            for group in worker.optimizer.param_groups:
                group["lr"] = self._lesson.lr_at(step)
        return self.workers.step(lambda rank, model: self._loss(model, self._batches[rank].at(step)))

    def _loss(self, model: nn.Module, picked: NDArray[np.int64]) -> Tensor:
        train = self._arrays.train
        return F.cross_entropy(model(self._task.inputs(train.x[picked])), targets(train.y[picked]))

    def gradient(self, numbers: Tensor) -> Tensor:
        """`[numel]`, the gradient of the loss over the first 256 samples, at a point."""
        model, flat = self._probe
        flat.values.copy_(numbers)
        flat.grads.zero_()
        loss = self._loss(model, np.arange(min(256, len(self._arrays.train))))
        loss.backward()  # type: ignore[no-untyped-call]
        return flat.grads.clone()

    @functools.cached_property
    def _probe(self) -> tuple[nn.Module, Flat]:
        [model] = copies(self.workers.all[0].model, 1)
        return model, Flat(model)

    @torch.no_grad()
    def score(self, model: nn.Module) -> tuple[float, float]:
        """Test loss and accuracy."""
        test, count = self._arrays.test, min(self._lesson.test_samples, len(self._arrays.test))
        sums = torch.zeros(3, dtype=torch.float64)
        for start in range(0, count, _CHUNK):
            end = min(start + _CHUNK, count)
            sums += _scored(model, self._task, Split(test.x[start:end], test.y[start:end]))
        return float(sums[0] / sums[2]), float(sums[1] / sums[2])


def _scored(model: nn.Module, task: Task, part: Split) -> Tensor:
    scores, y = model(task.inputs(part.x)), targets(part.y)
    loss = F.cross_entropy(scores, y, reduction="sum").double()
    return torch.stack(
        [loss, (scores.argmax(1) == y).sum().double(), torch.tensor(float(y.numel())).double()]
    )


@functools.cache
def _loaded(name: str) -> Arrays:
    return load(name)
