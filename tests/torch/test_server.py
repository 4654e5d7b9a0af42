"""A server sums what the others contribute: results against a naive computation, over every kind of link."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.distributed as dist

import tweed
from tests.faults.ring import part
from tests.torch.naive import FLOATS, reduced, same, value
from tests.torch.test_operations import OPS
from tweed.errors import UsageError
from tweed.testbed import run_ranks
from tweed.torch import Options

SHAPES = [(1,), (3, 5), (20_001,)]


def cases() -> list[tuple[str, torch.dtype, tuple[int, ...]]]:
    """Every reduction of every type that has it."""
    floats = itertools.product(OPS.keys() - {"band", "bor", "bxor"}, FLOATS, SHAPES)
    whole = itertools.product(OPS.keys() - {"avg"}, [torch.int32, torch.uint8], SHAPES)
    return [*sorted(floats, key=str), *sorted(whole, key=str), ("bor", torch.bool, (3, 5))]


def check_all(rank: int, size: int, server: int) -> None:
    """Every reduction, in every collective that has one."""
    workers = [worker for worker in range(size) if worker != server]
    for op, dtype, shape in cases():
        reduce_op = OPS[op][0]
        expected = reduced(op, [value(worker, shape, dtype) for worker in workers])
        mine = value(rank, shape, dtype)
        total = mine.clone()
        dist.all_reduce(total, reduce_op)
        same(total, expected)
        for root in (0, size - 1):
            at_root = mine.clone()
            dist.reduce(at_root, root, reduce_op)
            same(at_root, expected if rank == root else mine)
        parts = [value(rank, shape, dtype, salt=part) for part in range(size)]
        part = torch.empty_like(mine)
        dist.reduce_scatter(part, parts, reduce_op)
        same(part, reduced(op, [value(worker, shape, dtype, salt=rank) for worker in workers]))


def serve(rank: int, size: int, server: int) -> None:
    """As workers and server."""
    check_all(rank, size, server)
    dist.barrier()
    everybody = [torch.empty(1, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(everybody, torch.tensor([rank]))
    assert [one.item() for one in everybody] == list(range(size))  # the server still takes part


@pytest.mark.parametrize(
    ("server", "transport", "schedule"),
    [
        (0, "auto", ""),
        (2, "tcp", ""),
        (1, "auto", "all_reduce=ring,reduce_scatter=ring"),
        (1, "tcp", "all_reduce=halving_doubling,reduce_scatter=pairwise"),
        (0, "auto", "all_reduce=exchange,reduce=pairwise"),
    ],
)
def test_the_server_contributes_nothing(
    server: int, transport: str, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWEED_TRANSPORT", transport)
    monkeypatch.setenv("TWEED_SERVER", str(server))
    monkeypatch.setenv("TWEED_SCHEDULE", schedule)
    run_ranks(serve, 3, server, backend="tweed")


def serve_in_place(rank: int, size: int, server: int) -> float:
    """Memory that the ranks share, large enough to be read and written in place."""
    tensor = tweed.empty(200_000).fill_(3.0 * rank)
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    assert tensor.unique().numel() == 1
    return float(tensor[0])


@pytest.mark.parametrize("schedule", ["", "all_reduce=pairwise", "all_reduce=exchange"])
def test_in_place(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEED_SERVER", "1")
    monkeypatch.setenv("TWEED_SCHEDULE", schedule)
    assert run_ranks(serve_in_place, 4, 1, backend="tweed") == [(0.0 + 6.0 + 9.0) / 3] * 4


def refused(rank: int, size: int, server: int) -> str:
    """What a group with that server says."""
    with pytest.raises(UsageError) as caught:
        dist.new_group(backend="tweed", pg_options=Options(server=server))
    part(rank, size)
    return str(caught.value)


@pytest.mark.parametrize(("size", "server", "says"), [(2, 2, "there are 2 ranks"), (1, 0, "nothing to sum")])
def test_a_server_must_be_a_rank_and_have_a_worker(size: int, server: int, says: str) -> None:
    for text in run_ranks(refused, size, server, backend="tweed"):
        assert says in text
