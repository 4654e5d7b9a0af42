"""A convolutional net on images, with a metric that is summed over ranks."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def program(rank: int, size: int) -> Callable[[], Tensor]:
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(1, 16, 3, stride=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
    )
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 36, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    draw = torch.Generator().manual_seed(rank)

    def step() -> Tensor:
        x, y = torch.randn(16, 1, 28, 28, generator=draw), torch.randint(10, (16,), generator=draw)
        optimizer.zero_grad()
        scores = model(x)
        loss = F.cross_entropy(scores, y)
        loss.backward()
        optimizer.step()
        right = torch.stack([(scores.argmax(1) == y).sum().double(), torch.tensor(16.0).double()])
        dist.all_reduce(right)
        return torch.stack([loss.detach(), (right[0] / right[1]).float()])

    return step
