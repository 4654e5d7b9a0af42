"""Collectives that gradients go through (torch.distributed.nn)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed.nn
from torch import Tensor


def program(rank: int, size: int) -> Callable[[], list[Tensor]]:
    def step() -> list[Tensor]:
        x = (torch.arange(1024.0) + rank).requires_grad_()
        total = torch.distributed.nn.functional.all_reduce(x * x)
        whole = torch.cat(torch.distributed.nn.functional.all_gather(total * x))
        whole.mean().backward()
        return [whole[::512].detach(), x.grad[:4]]

    return step
