"""Objects between two ranks: send_object_list and recv_object_list."""

from __future__ import annotations

from collections.abc import Callable

import torch.distributed as dist


def program(rank: int, size: int) -> Callable[[], list[float]]:
    def step() -> list[float]:
        values = [rank, {"step": 10 * rank}]
        if rank == 0:
            dist.send_object_list(values, dst=1)
        else:
            dist.recv_object_list(values, src=0)
        return [values[0], values[1]["step"]]

    return step
