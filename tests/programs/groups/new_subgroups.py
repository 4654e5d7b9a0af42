"""new_subgroups, and new_subgroups_by_enumeration."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

RANKS = 4


def program(rank: int, size: int) -> Callable[[], Tensor]:
    halves, _ = dist.new_subgroups(2)
    across, _ = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])

    def step() -> Tensor:
        total = torch.full((1024,), float(rank))
        dist.all_reduce(total, group=halves)
        dist.all_reduce(total, group=across)
        return total[:1]

    return step
