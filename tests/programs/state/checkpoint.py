"""Distributed checkpoint of an FSDP2 model and its Adam: save and load."""

from __future__ import annotations

import tempfile
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

from tests.programs.nets import mlp, training


def program(rank: int, size: int) -> Callable[[], Tensor]:
    model = fully_shard(mlp())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    train = training(model, optimizer, rank)
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)

    def step() -> Tensor:
        train()
        weights, moments = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=folder[0])
        train()
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments}
        dcp.load(state, checkpoint_id=folder[0])
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        return train()

    return step
