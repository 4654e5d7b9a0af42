"""Gradient accumulation under `no_sync`, four batches a step."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from tests.programs.nets import batches, mlp, sgd


def program(rank: int, size: int) -> Callable[[], Tensor]:
    model = DistributedDataParallel(mlp())
    optimizer, batch = sgd(model), batches(rank)

    def loss() -> Tensor:
        x, y = batch()
        return F.cross_entropy(model(x), y) / 4

    def step() -> Tensor:
        optimizer.zero_grad()
        with model.no_sync():
            for _ in range(3):
                loss().backward()
        last = loss()
        last.backward()
        optimizer.step()
        return last.detach()

    return step
