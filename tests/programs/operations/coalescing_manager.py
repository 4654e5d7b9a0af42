"""Coalescing manager around several all-gathers."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

WHY = "torch's Gloo has no coalesced all_gather_into_tensor under the manager"


def program(rank: int, size: int) -> Callable[[], list[Tensor]]:
    def step() -> list[Tensor]:
        given = [torch.full((1024,), 10.0 * rank + place) for place in range(4)]
        taken = [torch.empty(1024 * size) for _ in given]
        with dist._coalescing_manager(async_ops=True) as together:
            for output, tensor in zip(taken, given, strict=True):
                dist.all_gather_into_tensor(output, tensor)
        together.wait()
        return [output[::1024] for output in taken]

    return step
