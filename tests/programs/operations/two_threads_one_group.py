"""Two threads that send and receive in one group, by tags."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import Tensor


def program(rank: int, size: int) -> Callable[[], list[Tensor]]:
    pool = ThreadPoolExecutor(2)

    def swap(tag: int) -> Tensor:
        given, taken = torch.full((512,), rank + 10.0 * tag), torch.empty(512)
        receipt = dist.irecv(taken, 1 - rank, tag=tag)
        dist.isend(given, 1 - rank, tag=tag).wait()
        receipt.wait()
        return taken[:1]

    return lambda: list(pool.map(swap, range(2)))
