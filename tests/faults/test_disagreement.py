"""Ranks that call different things are told what each of them called."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from tests.faults.ring import Outcome, caught
from tweed.testbed import run_ranks

Calls = Callable[[int], object]

CALLS: dict[str, tuple[Calls, list[str]]] = {
    "shape": (
        lambda rank: dist.all_reduce(torch.ones(4 + rank, 2)),
        ["float32 [4, 2]", "float32 [5, 2]", "float32 [6, 2]"],
    ),
    "dtype": (
        lambda rank: dist.all_reduce(torch.ones(4, dtype=[torch.float32, torch.int32, torch.float64][rank])),
        ["float32 [4]", "int32 [4]", "float64 [4]"],
    ),
    "reduction": (
        lambda rank: dist.all_reduce(torch.ones(4), [dist.ReduceOp.SUM, dist.ReduceOp.MAX][rank == 1]),
        ["all_reduce SUM", "all_reduce MAX", "all_reduce SUM"],
    ),
    "operation": (
        lambda rank: dist.broadcast(torch.ones(4), 0) if rank == 1 else dist.all_reduce(torch.ones(4)),
        ["all_reduce", "broadcast", "all_reduce"],
    ),
}


def calls(rank: int, size: int, what: str) -> Outcome:
    return caught(lambda: CALLS[what][0](rank))


@pytest.mark.parametrize("what", CALLS)
def test_disagreement_names_each_ranks_value(what: str, way: str) -> None:
    for kind, text, _ in run_ranks(calls, 3, what, backend="tweed"):
        assert kind == "ShapeMismatch"
        said = [line for line in text.splitlines() if line.startswith("  rank ")]
        assert len(said) == 3
        for rank, (line, value) in enumerate(zip(said, CALLS[what][1], strict=True)):
            assert line.startswith(f"  rank {rank}: ")
            assert value in line
