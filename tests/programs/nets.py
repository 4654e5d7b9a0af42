"""Models, batches and steps that programs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

WIDTH = 256


def mlp(width: int = WIDTH, depth: int = 3) -> nn.Sequential:
    """About a megabyte of parameters, the same on every rank."""
    torch.manual_seed(0)
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def batches(rank: int, width: int = WIDTH, size: int = 16) -> Callable[[], tuple[Tensor, Tensor]]:
    """Gives a batch of this rank's at each call."""
    draw = torch.Generator().manual_seed(rank + 1)

    def batch() -> tuple[Tensor, Tensor]:
        return torch.randn(size, width, generator=draw), torch.randint(10, (size,), generator=draw)

    return batch


def training(model: nn.Module, optimizer: Optimizer, rank: int, width: int = WIDTH) -> Callable[[], Tensor]:
    """A step of the plainest loop; gives the loss."""
    batch = batches(rank, width)

    def step() -> Tensor:
        x, y = batch()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def pipelined(schedule: Any, stage: nn.Module, rank: int, size: int) -> Callable[[], Tensor | None]:
    """A step of this rank's stage under a schedule of torch's pipelining; gives the loss on the last rank."""
    optimizer, batch = sgd(stage), batches(0)

    def step() -> Tensor | None:
        x, y = batch()
        optimizer.zero_grad()
        losses: list[Tensor] = []
        if rank == 0:
            schedule.step(x)
        elif rank == size - 1:
            schedule.step(target=y, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        return torch.stack(losses).mean().detach() if losses else None

    return step


def sgd(model: nn.Module) -> Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
