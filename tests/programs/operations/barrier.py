"""barrier, and asynchronously."""

from __future__ import annotations

from collections.abc import Callable

import torch.distributed as dist


def program(rank: int, size: int) -> Callable[[], None]:
    def step() -> None:
        dist.barrier()
        dist.barrier(async_op=True).wait()

    return step
