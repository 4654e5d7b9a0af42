"""Objects: broadcast, gather, all-gather and scatter of pickled values."""

from __future__ import annotations

from collections.abc import Callable

import torch.distributed as dist


def program(rank: int, size: int) -> Callable[[], list[float]]:
    def step() -> list[float]:
        shared = [{"lr": 0.5, "name": "x" * 100}] if rank == 0 else [None]
        dist.broadcast_object_list(shared, src=0)
        by_rank: list[object] = [None] * size
        dist.all_gather_object(by_rank, {"rank": rank})
        gathered: list[object] | None = [None] * size if rank == 1 else None
        dist.gather_object((rank, shared[0]), gathered, dst=1)
        mine: list[object] = [None]
        dist.scatter_object_list(mine, list(range(10, 10 + size)) if rank == 0 else None, src=0)
        return [shared[0]["lr"], sum(one["rank"] for one in by_rank), mine[0]]

    return step
