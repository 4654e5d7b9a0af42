"""Two threads, each with a group of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import Tensor


def program(rank: int, size: int) -> Callable[[], list[Tensor]]:
    groups = [dist.new_group(), dist.new_group()]
    pool = ThreadPoolExecutor(2)

    def sums(place: int) -> Tensor:
        total = torch.full((512,), rank + 1.0)
        for _ in range(5):
            dist.all_reduce(total, group=groups[place])
        return total[: place + 1]

    return lambda: list(pool.map(sums, range(2)))
