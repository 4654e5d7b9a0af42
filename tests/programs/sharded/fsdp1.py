"""FullyShardedDataParallel, the first one."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributed.fsdp import FullyShardedDataParallel

from tests.programs.nets import mlp, sgd, training


def program(rank: int, size: int) -> Callable[[], Tensor]:
    model = FullyShardedDataParallel(mlp(), device_id=torch.device("cpu"))
    return training(model, sgd(model), rank)
