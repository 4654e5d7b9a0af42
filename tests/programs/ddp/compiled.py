"""`torch.compile` of a model in DDP, by AOTAutograd with DDP's splits of the graph."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from tests.programs.nets import mlp, sgd, training


def program(rank: int, size: int) -> Callable[[], Tensor]:
    model = DistributedDataParallel(mlp())
    compiled = torch.compile(model, backend="aot_eager")
    return training(compiled, sgd(model), rank)
