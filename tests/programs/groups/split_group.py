"""split_group: halves of the default group."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

RANKS = 4


def program(rank: int, size: int) -> Callable[[], Tensor]:
    half = dist.split_group(split_ranks=[[0, 1], [2, 3]])
    dist.barrier()  # rank 0 keeps the store by which ranks meet: it must not end before the others have

    def step() -> Tensor:
        total = torch.full((1024,), float(rank))
        dist.all_reduce(total, group=half)
        return total[:1]

    return step
