"""Distributed checkpoint that is saved asynchronously, beside training, by a group of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.fsdp import fully_shard

from tests.programs.nets import mlp, sgd, training


def program(rank: int, size: int) -> Callable[[], Tensor]:
    model = fully_shard(mlp())
    train = training(model, sgd(model), rank)
    group = dist.new_group(backend=f"cpu:{dist.get_backend()}")
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)

    def step() -> Tensor:
        saving = dcp.async_save({"model": model.state_dict()}, checkpoint_id=folder[0], process_group=group)
        for _ in range(3):
            loss = train()
        saving.result()
        return loss

    return step
