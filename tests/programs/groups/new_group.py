"""Groups that overlap: pairs of four ranks, made anew at each step."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

RANKS = 4


def program(rank: int, size: int) -> Callable[[], Tensor]:
    def step() -> Tensor:
        pairs = [dist.new_group([first, (first + 1) % size]) for first in range(size)]
        total = torch.full((16,), float(rank))
        for first in (0, 2, 1, 3):
            if rank in (first, (first + 1) % size):
                dist.all_reduce(total, group=pairs[first])
        dist.barrier()
        for pair in pairs:
            if pair != dist.GroupMember.NON_GROUP_MEMBER:
                dist.destroy_process_group(pair)
        return total[:1]

    return step
