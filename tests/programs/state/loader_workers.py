"""DDP with a DataLoader whose workers are forked processes."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.programs.nets import WIDTH, mlp, sgd


def program(rank: int, size: int) -> Callable[[], Tensor]:
    draw = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.randn(256, WIDTH, generator=draw), torch.randint(10, (256,), generator=draw))
    model = DistributedDataParallel(mlp())
    optimizer = sgd(model)
    loader = DataLoader(
        data, 16, sampler=DistributedSampler(data, size, rank), num_workers=2, multiprocessing_context="fork"
    )

    def step() -> Tensor:
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        return loss.detach()

    return step
