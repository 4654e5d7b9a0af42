"""DistributedDataParallel, SGD with momentum."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from tests.programs.nets import mlp, sgd, training


def program(rank: int, size: int) -> Callable[[], Tensor]:
    model = DistributedDataParallel(mlp())
    return training(model, sgd(model), rank)
