"""DeviceMesh of two by two: sums along each side, and along both."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

RANKS = 4


def program(rank: int, size: int) -> Callable[[], Tensor]:
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
    whole = mesh["outer", "inner"]._flatten("whole")

    def step() -> Tensor:
        total = torch.full((1024,), float(rank))
        for side in (mesh["outer"], mesh["inner"], whole):
            dist.all_reduce(total, group=side.get_group())
        return total[:1]

    return step
