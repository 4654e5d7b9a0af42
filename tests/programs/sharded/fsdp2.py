"""FSDP2: `fully_shard` of every layer, Adam, clipped gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.fsdp import fully_shard

from tests.programs.nets import batches, mlp


def program(rank: int, size: int) -> Callable[[], Tensor]:
    model = mlp()
    for layer in model[::2]:
        fully_shard(layer)
    fully_shard(model)
    optimizer, batch = torch.optim.Adam(model.parameters(), lr=1e-3), batches(rank)

    def step() -> Tensor:
        x, y = batch()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return torch.stack([loss.detach(), norm.full_tensor()])

    return step
