"""Batch norm, whose buffers rank 0 broadcasts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.programs.nets import WIDTH, sgd, training


def program(rank: int, size: int) -> Callable[[], Tensor]:
    torch.manual_seed(0)
    layers = (nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
    model = DistributedDataParallel(nn.Sequential(*layers))
    return training(model, sgd(model), rank)
