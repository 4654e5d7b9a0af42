"""all_to_all_single, even and uneven."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor


def program(rank: int, size: int) -> Callable[[], list[Tensor]]:
    def step() -> list[Tensor]:
        even = torch.empty(size * 512)
        dist.all_to_all_single(even, torch.arange(512.0 * size) + rank)
        uneven = torch.empty(64 * sum(range(1, size + 1)))
        given = torch.full((64 * (rank + 1) * size,), float(rank))
        dist.all_to_all_single(
            uneven, given, [64 * (peer + 1) for peer in range(size)], [64 * (rank + 1)] * size
        )
        return [even[::512], uneven[::64]]

    return step
