"""Functional collectives."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import Tensor


def program(rank: int, size: int) -> Callable[[], list[Tensor]]:
    group = dist.group.WORLD
    assert group is not None

    def step() -> list[Tensor]:
        tensor = torch.arange(size * 1024.0).reshape(size, 1024) + rank
        total = funcol.all_reduce(tensor, "sum", group)
        share = funcol.reduce_scatter_tensor(tensor, "sum", 0, group)
        whole = funcol.all_gather_tensor(share, 0, group)
        swapped = funcol.all_to_all_single(tensor, None, None, group)
        return [found[:, :1] for found in (total, share, whole, swapped)]

    return step
