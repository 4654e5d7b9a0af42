"""ZeroRedundancyOptimizer: Adam's state in shards."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from tests.programs.nets import mlp, training


def program(rank: int, size: int) -> Callable[[], Tensor]:
    model = DistributedDataParallel(mlp())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3)
    return training(model, optimizer, rank)
