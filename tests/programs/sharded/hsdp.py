"""HSDP: FSDP2 on a mesh of two by two, sharded within rows, replicated across."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.distributed import init_device_mesh
from torch.distributed.fsdp import fully_shard

from tests.programs.nets import mlp, sgd, training

RANKS = 4


def program(rank: int, size: int) -> Callable[[], Tensor]:
    model = mlp()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    fully_shard(model, mesh=mesh)
    return training(model, sgd(model), rank)
