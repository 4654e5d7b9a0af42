"""Sums over a network that loses packets: what arrived is summed exactly, the rest is told exactly."""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from tweed.testbed import Network, Ranks, opened
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


RANKS, NUMEL, ROUNDS = 3, 300_000, 3
EAGER = Ltp(fraction=0.8, slack_s=0.0)  # gives up early, so that something is lost in nearly every sum
EAGER_BY_DELIVERED = Ltp(fraction=0.8, slack_s=0.0, divide_by="delivered")


class Case(NamedTuple):
    """A way to take sums."""

    ltp: Ltp
    server: int | None = None
    op: Any = dist.ReduceOp.SUM
    dtype: torch.dtype = torch.float32


CASES = {
    "sum": Case(EAGER),
    "sum_of_halves": Case(EAGER, dtype=torch.bfloat16),
    "sum_of_doubles": Case(EAGER, dtype=torch.float64),
    "sum_at_a_server": Case(EAGER, server=1),
    "average_over_all": Case(EAGER, op=dist.ReduceOp.AVG),
    "average_over_delivered": Case(EAGER_BY_DELIVERED, op=dist.ReduceOp.AVG),
    "average_at_a_server": Case(EAGER_BY_DELIVERED, server=0, op=dist.ReduceOp.AVG),
    "lossless": Case(Ltp(lossless=True)),
    "whole_numbers": Case(EAGER, dtype=torch.int32),
    "largest": Case(EAGER, op=dist.ReduceOp.MAX),
    "product": Case(EAGER, op=dist.ReduceOp.PRODUCT, dtype=torch.float64),
}
Found = list[dict[str, list[Round]]]
MAY_LOSE = [name for name in CASES if name.startswith(("sum", "average"))]


def run_cases(rank: int, size: int) -> dict[str, list[Round]]:
    """All cases, one after the other."""
    found = {}
    for name, case in CASES.items():
        group = group_over_packets(case.ltp, case.server)
        found[name] = [reduce_round(group, number, NUMEL, case.dtype, case.op) for number in range(ROUNDS)]
    found["kept whole"] = [keep_half(group_over_packets(EAGER))]
    return found


def keep_half(group: dist.ProcessGroup) -> Round:
    """A sum whose second half must be complete."""
    buffer = torch.full((NUMEL,), float(dist.get_rank() + 1))
    half = NUMEL // 2 * buffer.element_size()
    engine_group(group).keep_whole(buffer.data_ptr() + half, half)
    before = buffer.clone()
    lost = torch.zeros_like(buffer)
    for _ in range(ROUNDS):
        buffer.copy_(before)
        dist.all_reduce(buffer, group=group)
        for address, values in (pair for d in engine_group(group).take_deliveries() for pair in d.lost):
            first = (address - buffer.data_ptr()) // 4
            lost[first : first + len(values) // 4] += 1
    return Round(buffer, lost, 0, {})


@pytest.fixture(scope="module")
def found(namespaces: None) -> Found:
    """What each rank says of each case."""
    with opened(Network(loss=0.03), RANKS) as bed, Ranks(run_cases, RANKS, bed=bed, backend="tweed") as ranks:
        return ranks.join(120)


def workers(case: Case) -> list[int]:
    return [rank for rank in range(RANKS) if rank != case.server]


def summed(parts: list[Tensor]) -> Tensor:
    return reduce(torch.add, [part.double() for part in parts])


@pytest.mark.parametrize("name", MAY_LOSE)
def test_what_was_applied_and_what_was_lost_make_up_what_was_contributed(name: str, found: Found) -> None:
    case = CASES[name]
    for number in range(ROUNDS):
        rounds = [rank[name][number] for rank in found]
        sent = [contribution(rank, number, NUMEL, case.dtype) for rank in range(RANKS)]
        arrived = [sent[rank] - rounds[rank].lost for rank in workers(case)]
        assert all(
            ((part == 0) | (part == sent[rank])).all()
            for part, rank in zip(arrived, workers(case), strict=True)
        )
        divisor = torch.ones(NUMEL, dtype=torch.float64)
        if case.op == dist.ReduceOp.AVG:
            divisor *= len(workers(case))
            if case.ltp.divide_by == "delivered":
                divisor = summed([(part != 0) for part in arrived]).clamp(min=1)
        expected = summed(arrived) / divisor
        for found_round in rounds:
            torch.testing.assert_close(found_round.result.double(), expected, rtol=1e-6, atol=0)
    assert sum(rank[name][number].lost_bytes for rank in found for number in range(ROUNDS)) > 0


@pytest.mark.parametrize("name", MAY_LOSE)
def test_both_ends_of_a_link_count_alike(name: str, found: Found) -> None:
    for number in range(ROUNDS):
        rounds = [rank[name][number] for rank in found]
        for rank, told in enumerate(rounds):
            for other, share in told.by_rank.items():
                assert rounds[other].by_rank[rank] == share
            assert rank != CASES[name].server or told.lost_bytes == 0
            assert rank == CASES[name].server or sum(n for n, _ in told.by_rank.values()) > 0


@pytest.mark.parametrize("name", sorted(CASES.keys() - set(MAY_LOSE)))
def test_all_else_arrives_whole(name: str, found: Found) -> None:
    case = CASES[name]
    combine = {dist.ReduceOp.MAX: torch.maximum, dist.ReduceOp.PRODUCT: torch.mul}.get(case.op, torch.add)
    for number in range(ROUNDS):
        expected = reduce(combine, [contribution(rank, number, NUMEL, case.dtype) for rank in range(RANKS)])
        for rank in found:
            assert torch.equal(rank[name][number].result, expected)
            assert rank[name][number].by_rank == {}


def test_marked_memory_is_whole(found: Found) -> None:
    for rank in found:
        (told,) = rank["kept whole"]
        assert not told.lost[NUMEL // 2 :].any()
        assert (told.result[NUMEL // 2 :] == 6).all()
    assert any(rank["kept whole"][0].lost.any() for rank in found)
