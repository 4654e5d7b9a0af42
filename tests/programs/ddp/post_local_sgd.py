"""Post-local SGD: DDP's hook and optimizer, models averaged every four steps."""

from __future__ import annotations

from collections.abc import Callable

import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

from tests.programs.nets import mlp, sgd, training


def program(rank: int, size: int) -> Callable[[], Tensor]:
    model = DistributedDataParallel(mlp())
    alone = dist.new_subgroups(1)[0]
    model.register_comm_hook(PostLocalSGDState(None, alone, start_localSGD_iter=2), post_localSGD_hook)
    averager = PeriodicModelAverager(period=4, warmup_steps=2)
    return training(model, PostLocalSGDOptimizer(sgd(model), averager), rank)
