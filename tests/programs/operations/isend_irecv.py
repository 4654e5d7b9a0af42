"""isend and irecv, several at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor


def program(rank: int, size: int) -> Callable[[], list[Tensor]]:
    def step() -> list[Tensor]:
        peer = 1 - rank
        given = [torch.full((2048,), 10.0 * rank + tag) for tag in range(4)]
        taken = [torch.empty(2048) for _ in given]
        works = [dist.irecv(tensor, peer, tag=tag) for tag, tensor in enumerate(taken)]
        works += [dist.isend(tensor, peer, tag=tag) for tag, tensor in enumerate(given)]
        for work in works:
            work.wait()
        return [tensor[:1] for tensor in taken]

    return step
