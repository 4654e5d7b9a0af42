"""all_gather into a list and into one tensor, and reduce_scatter_tensor."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor


def program(rank: int, size: int) -> Callable[[], list[Tensor]]:
    mine = torch.arange(4096.0) + rank

    def step() -> list[Tensor]:
        several = [torch.empty_like(mine) for _ in range(size)]
        dist.all_gather(several, mine)
        whole = torch.empty(size * mine.numel())
        dist.all_gather_into_tensor(whole, mine)
        share = torch.empty_like(mine)
        dist.reduce_scatter_tensor(share, whole)
        return [several[-1][:2], whole[::4096], share[:4]]

    return step
