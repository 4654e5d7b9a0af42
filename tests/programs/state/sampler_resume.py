"""DistributedSampler and a loader, stopped within an epoch and resumed from a checkpoint."""

from __future__ import annotations

import io
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.programs.nets import WIDTH, mlp, sgd


def program(rank: int, size: int) -> Callable[[], Tensor]:
    draw = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.randn(128, WIDTH, generator=draw), torch.randint(10, (128,), generator=draw))

    def trained(
        model: DistributedDataParallel, optimizer: torch.optim.Optimizer, first: int, last: int
    ) -> Tensor:
        sampler = DistributedSampler(data, size, rank, seed=1)
        sampler.set_epoch(3)
        for number, (x, y) in enumerate(DataLoader(data, 16, sampler=sampler)):
            if first <= number < last:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
        return loss.detach()

    def step() -> Tensor:
        model = DistributedDataParallel(mlp())
        optimizer, kept = sgd(model), io.BytesIO()
        trained(model, optimizer, 0, 2)
        torch.save((model.state_dict(), optimizer.state_dict()), kept)
        resumed = DistributedDataParallel(mlp())
        again = sgd(resumed)
        weights, moments = torch.load(io.BytesIO(kept.getvalue()))
        resumed.load_state_dict(weights)
        again.load_state_dict(moments)
        return trained(resumed, again, 2, 4)

    return step
