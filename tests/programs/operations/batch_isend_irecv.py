"""batch_isend_irecv around a ring of four."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

RANKS = 4


def program(rank: int, size: int) -> Callable[[], Tensor]:
    def step() -> Tensor:
        given, taken = torch.full((4096,), float(rank)), torch.empty(4096)
        operations = [
            dist.P2POp(dist.isend, given, (rank + 1) % size),
            dist.P2POp(dist.irecv, taken, (rank - 1) % size),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        return taken[:2]

    return step
