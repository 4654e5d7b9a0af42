"""Futures of asynchronous calls, with what follows them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor


def program(rank: int, size: int) -> Callable[[], list[Tensor]]:
    def step() -> list[Tensor]:
        works = [
            dist.all_reduce(torch.full((1024,), float(rank + place)), async_op=True) for place in range(8)
        ]
        means = [work.get_future().then(lambda done: done.value()[0] / size) for work in works]
        return [mean[:1] for mean in torch.futures.wait_all(means)]

    return step
