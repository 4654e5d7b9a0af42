"""DDP's hook that sends bfloat16."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from tests.programs.nets import mlp, sgd, training


def program(rank: int, size: int) -> Callable[[], Tensor]:
    model = DistributedDataParallel(mlp())
    model.register_comm_hook(None, bf16_compress_hook)
    return training(model, sgd(model), rank)
