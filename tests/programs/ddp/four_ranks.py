"""DistributedDataParallel on four ranks, Adam."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from tests.programs.nets import mlp, training

RANKS = 4


def program(rank: int, size: int) -> Callable[[], Tensor]:
    model = DistributedDataParallel(mlp())
    return training(model, torch.optim.Adam(model.parameters(), lr=1e-3), rank)
