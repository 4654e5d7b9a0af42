"""Sequence parallel: norms on shards of the sequence, between tensor parallel layers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributed import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


def program(rank: int, size: int) -> Callable[[], Tensor]:
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (size,))
    model = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    plan = {
        "0": SequenceParallel(sequence_dim=1),
        "1": ColwiseParallel(input_layouts=Shard(1)),
        "3": RowwiseParallel(output_layouts=Replicate()),
    }
    parallelize_module(model, mesh, plan)
    parallelize_module(
        model, mesh, PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    draw = torch.Generator().manual_seed(1)

    def step() -> Tensor:
        x = torch.randn(4, 32, 64, generator=draw)
        optimizer.zero_grad()
        loss = (model(x) - x.flip(1)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
