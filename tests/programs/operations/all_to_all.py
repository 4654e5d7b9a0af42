"""all_to_all of lists, and all_to_all_single with uneven parts."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

WHY = "Gloo has no all_to_all of lists"


def program(rank: int, size: int) -> Callable[[], list[Tensor]]:
    def step() -> list[Tensor]:
        given = [torch.full((64 * (rank + 1),), 10.0 * rank + peer) for peer in range(size)]
        taken = [torch.empty(64 * (peer + 1)) for peer in range(size)]
        dist.all_to_all(taken, given)
        output = torch.empty(64 * sum(range(1, size + 1)))
        dist.all_to_all_single(
            output, torch.cat(given), [len(one) for one in taken], [len(one) for one in given]
        )
        return [output[::64], *(one[:1] for one in taken)]

    return step
