"""An embedding with sparse gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def program(rank: int, size: int) -> Callable[[], Tensor]:
    torch.manual_seed(0)
    inner = nn.Sequential(nn.EmbeddingBag(10_000, 32, mode="sum", sparse=True), nn.Linear(32, 10))
    model = DistributedDataParallel(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    draw = torch.Generator().manual_seed(rank)

    def step() -> Tensor:
        words = torch.randint(10_000, (16, 8), generator=draw)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(words), words[:, 0] % 10)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
