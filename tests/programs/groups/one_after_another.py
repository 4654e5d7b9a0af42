"""The default group is destroyed and made again, in the same processes."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor


def program(rank: int, size: int) -> Callable[[], Tensor]:
    backend = dist.get_backend()
    store = dist.distributed_c10d._get_default_store()
    lives = iter(range(1_000_000))

    def step() -> Tensor:
        dist.destroy_process_group()
        fresh = dist.PrefixStore(f"life {next(lives)}", store)
        dist.init_process_group(backend, store=fresh, rank=rank, world_size=size)
        total = torch.full((16,), float(rank))
        dist.all_reduce(total)
        return total[:1]

    return step
