"""Uneven inputs: `Join` with one rank that has twice the batches."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from tests.programs.nets import mlp, sgd, training


def program(rank: int, size: int) -> Callable[[], Tensor]:
    model = DistributedDataParallel(mlp())
    one = training(model, sgd(model), rank)

    def step() -> Tensor:
        with Join([model]):
            for _ in range(2 + 2 * rank):
                loss = one()
        return loss

    return step
