"""Tensor parallel within FSDP2, on a mesh of two by two."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.distributed import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from tests.programs.nets import mlp, sgd, training

RANKS = 4


def program(rank: int, size: int) -> Callable[[], Tensor]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel(), "4": ColwiseParallel(), "6": RowwiseParallel()}
    model = parallelize_module(mlp(), mesh["tensor"], plan)
    fully_shard(model, mesh=mesh["data"])
    return training(model, sgd(model), rank // 2)
