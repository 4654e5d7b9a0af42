"""One worker's part of a task, and a step of training: the body of every training loop here."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from tweed.data import Arrays, Partition, Split, deal, load
from tweed.train.tasks import row, task
from tweed.train.tasks.base import targets


class Batches:
    """Endless passes over one rank's samples, each in another order.

    Args:
      indices: `[n]`, the rank's samples, n at least 1.
      size: samples per batch. A batch may reach over the end of a pass into the next.
      seed: decides the order, together with `rank` and the number of the pass.
    """

    def __init__(self, indices: NDArray[np.int64], size: int, seed: int, rank: int) -> None:
        self._indices = indices
        self._size = size
        self._key = (seed, rank)
        self._shuffled: tuple[int, NDArray[np.int64]] = (-1, indices)

    def at(self, step: int) -> NDArray[np.int64]:
        """`[size]`, the samples of step `step`, which counts from 0. Cost: one shuffle per pass."""
        places = np.arange(step * self._size, (step + 1) * self._size)
        passes, within = np.divmod(places, len(self._indices))
        picked = [self._pass(number)[within[passes == number]] for number in np.unique(passes).tolist()]
        return np.concatenate(picked)

    def _pass(self, number: int) -> NDArray[np.int64]:
        if self._shuffled[0] != number:
            # numpy's generator, not `tweed.rng`: another one would change every published training.
            random = np.random.default_rng([*self._key, number])
            self._shuffled = (number, random.permutation(self._indices))
        return self._shuffled[1]


_CHUNK = 250  # test samples at once

_loaded = functools.cache(load)  # virtual workers share the arrays; nobody writes to them


class Shard:
    """A task as one worker sees it: batches of its own samples, and the test samples.

    Args:
      name: of the task, in `tweed.train.tasks.TASKS`.
      batch: samples per step.
      worker, workers: whose part of how many. A server's number may be `workers`; it looks at no samples.
      partition: as for `tweed.data.Partition.parse`.
      seed: of partition and batches.
    """

    def __init__(
        self, name: str, batch: int, worker: int, workers: int, partition: str = "iid", seed: int = 0
    ) -> None:
        self.task = task(name)
        self.arrays: Arrays = _loaded(row(name).data)
        partitioned = deal(self.arrays.labels, workers, Partition.parse(partition), seed)
        self.samples = partitioned[min(worker, workers - 1)]
        self._batches = Batches(self.samples, batch, seed, worker)

    def model(self) -> nn.Module:
        """The task's model, by torch's random numbers as they stand."""
        return self.task.model(self.arrays)

    def batch(self, step: int) -> NDArray[np.int64]:
        """The samples of step `step`, which counts from 0."""
        return self._batches.at(step)

    def drawn(self, picked: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """These training samples, as the model takes them, and their labels."""
        train = self.arrays.train
        return self.task.inputs(train.x[picked]), targets(train.y[picked])

    def loss(self, model: nn.Module, picked: NDArray[np.int64]) -> Tensor:
        """Mean loss over these training samples."""
        inputs, labels = self.drawn(picked)
        return F.cross_entropy(model(inputs), labels)

    def test_loss(self, model: nn.Module, picked: NDArray[np.int64]) -> Tensor:
        """Mean loss over these test samples."""
        test = self.arrays.test
        return F.cross_entropy(model(self.task.inputs(test.x[picked])), targets(test.y[picked]))

    @torch.no_grad()
    def scores(self, model: nn.Module, count: int, rank: int = 0, size: int = 1) -> Tensor:
        """`[3]` float64: sum of losses, right predictions, predictions; of the first `count` test samples.

        With `size` ranks, of this rank's part of them: sums over ranks are those of all.
        """
        test, sums = self.arrays.test, torch.zeros(3, dtype=torch.float64)
        for start in range(rank * _CHUNK, min(count, len(test)), size * _CHUNK):
            end = min(start + _CHUNK, count)
            sums += self._score(model, Split(test.x[start:end], test.y[start:end]))
        return sums

    def _score(self, model: nn.Module, part: Split) -> Tensor:
        predicted, y = model(self.task.inputs(part.x)), targets(part.y)
        loss = F.cross_entropy(predicted, y, reduction="sum").double()
        right = (predicted.argmax(1) == y).sum().double()
        return torch.stack([loss, right, torch.tensor(float(y.numel()), dtype=torch.float64)])


def cosine(lr: float, step: int, steps: int) -> float:
    """A learning rate that falls from `lr` to zero along half a cosine, and stays there."""
    return lr * 0.5 * (1.0 + math.cos(math.pi * min(1.0, step / steps)))


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Sets the learning rate of all parameters."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def optimizer_step(optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor] | None) -> Tensor | None:
    """Backward pass, update, no gradients after; a server, which has no loss, takes part in the update alone.

    Returns: the loss, detached.
    """
    value = None
    if loss is not None:
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()
    return None if value is None else value.detach()
