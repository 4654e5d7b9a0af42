"""Distributed checkpoint that is saved asynchronously, beside training, by the default group."""

from __future__ import annotations

import tempfile
from collections.abc import Callable

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.fsdp import fully_shard

from tests.programs.nets import mlp, sgd, training

WHY = (
    "two threads call collectives of one group at a time, which torch forbids: Gloo hangs or dies, tweed "
    "raises ShapeMismatch and names the remedy, which is the row above"
)


def program(rank: int, size: int) -> Callable[[], Tensor]:
    model = fully_shard(mlp())
    train = training(model, sgd(model), rank)
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)

    def step() -> Tensor:
        saving = dcp.async_save({"model": model.state_dict()}, checkpoint_id=folder[0])
        for _ in range(3):
            loss = train()
        saving.result()
        return loss

    return step
