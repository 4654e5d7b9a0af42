"""Tensor parallel: columns, then rows."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.distributed import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from tests.programs.nets import mlp, sgd, training


def program(rank: int, size: int) -> Callable[[], Tensor]:
    mesh = init_device_mesh("cpu", (size,))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel(), "4": ColwiseParallel(), "6": RowwiseParallel()}
    model = parallelize_module(mlp(), mesh, plan)
    return training(model, sgd(model), 0)
