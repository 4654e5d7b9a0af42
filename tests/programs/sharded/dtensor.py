"""DTensor: from rows to columns, a product, and back to whole."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributed import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


def program(rank: int, size: int) -> Callable[[], Tensor]:
    mesh = init_device_mesh("cpu", (size,))
    whole = torch.randn(256, 256, generator=torch.Generator().manual_seed(0))

    def step() -> Tensor:
        rows = distribute_tensor(whole, mesh, [Shard(0)])
        columns = rows.redistribute(mesh, [Shard(1)])
        product = (columns @ rows).redistribute(mesh, [Replicate()])
        return product.to_local().sum(0)[:8] + rows.full_tensor().sum()

    return step
