"""all_reduce by sum, product, least and greatest, of floats, halves and whole numbers."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

OPS = (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX)
DTYPES = (torch.float32, torch.float64, torch.float16, torch.int64, torch.uint8)


def program(rank: int, size: int) -> Callable[[], list[Tensor]]:
    given = [(torch.arange(1024) % 3 + rank).to(dtype) for dtype in DTYPES]

    def step() -> list[Tensor]:
        results = [(tensor.clone(), op) for tensor in given for op in OPS]
        for tensor, op in results:
            dist.all_reduce(tensor, op)
        return [tensor[:4] for tensor, _ in results]

    return step
