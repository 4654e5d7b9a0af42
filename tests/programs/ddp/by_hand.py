"""Gradients averaged by hand: asynchronous all-reduces of each parameter, awaited together."""

from __future__ import annotations

from collections.abc import Callable

import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from tests.programs.nets import batches, mlp, sgd


def program(rank: int, size: int) -> Callable[[], Tensor]:
    model = mlp()
    optimizer, batch = sgd(model), batches(rank)

    def step() -> Tensor:
        x, y = batch()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        works = [dist.all_reduce(param.grad, async_op=True) for param in model.parameters()]
        for work, param in zip(works, model.parameters(), strict=True):
            work.wait()
            param.grad.div_(size)
        optimizer.step()
        return loss.detach()

    return step
