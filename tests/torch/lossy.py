"""Ranks whose contributions lose parts, and the account of what was lost."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.torch import Options
from tweed.torch.backend import engine_group
from tweed.transport import Ltp


class Round(NamedTuple):
    """One sum: what came out, and what this rank's contribution lacked (zeros elsewhere)."""

    result: Tensor
    lost: Tensor
    lost_bytes: int
    by_rank: dict[int, tuple[int, int]]


def group_over_packets(ltp: Ltp, server: int | None = None) -> dist.ProcessGroup:
    """A group of all ranks that sends by LTP."""
    options: Any = Options(transport=ltp, wire_only=True, server=server)
    made = dist.new_group(backend="tweed", pg_options=options)
    assert isinstance(made, dist.ProcessGroup)
    return made


def contribution(rank: int, number: int, numel: int, dtype: torch.dtype) -> Tensor:
    """`[numel]`: small whole numbers, none of them zero, so that sums are exact in any order."""
    return ((torch.arange(numel) * 7 + rank * 5 + number * 3) % 11 + 1).to(dtype)


def reduce_round(
    group: dist.ProcessGroup, number: int, numel: int, dtype: torch.dtype, op: Any = dist.ReduceOp.SUM
) -> Round:
    """One all-reduce, and what was lost of this rank's part in it."""
    buffer = contribution(dist.get_rank(), number, numel, dtype)
    dist.all_reduce(buffer, op, group=group)
    lost = torch.zeros_like(buffer)
    deliveries = engine_group(group).take_deliveries()
    assert len(deliveries) <= 1
    for delivery in deliveries:
        for address, values in delivery.lost:
            first = (address - buffer.data_ptr()) // buffer.element_size()
            part = torch.frombuffer(bytearray(values), dtype=dtype)
            lost[first : first + part.numel()] = part
        assert delivery.lost_bytes == sum(len(values) for _, values in delivery.lost)
    by_rank = deliveries[0].by_rank if deliveries else {}
    return Round(buffer, lost, sum(d.lost_bytes for d in deliveries), by_rank)
