"""What is urgent overtakes what is under way, and changes no result."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from tweed.errors import UsageError
from tweed.testbed import Network, run_ranks
from tweed.torch import set_urgency

RANKS = 3
BULK_NUMEL, SMALL_NUMEL = 500_000, 5_000


def overtakes(rank: int, size: int, urgent: bool) -> bool:
    """Whether a small all-reduce ends at this rank while a large one that was called before is under way."""
    bulk, small = torch.full((BULK_NUMEL,), float(rank)), torch.full((SMALL_NUMEL,), float(rank))
    if urgent:
        set_urgency(small, 1)
    work = dist.all_reduce(bulk, async_op=True)
    dist.all_reduce(small)
    assert work is not None
    first = not work.is_completed()
    work.wait()
    expected = float(sum(range(size)))
    assert bulk.eq(expected).all() and small.eq(expected).all()
    return first


def test_an_urgent_call_ends_before_a_large_one_that_was_called_before(namespaces: None) -> None:
    network = Network(rate_bits=2e7, queue_ms=50)
    assert all(run_ranks(overtakes, RANKS, True, backend="tweed", network=network))


def urgent_at_one_rank(rank: int, size: int) -> None:
    """Ranks disagree on what is urgent, and name parts and wholes of tensors."""
    tensors = [torch.full((SMALL_NUMEL,), float(rank + i)) for i in range(6)]
    for i, tensor in enumerate(tensors[rank::2]):
        set_urgency(tensor[100 * i :], i - 1)
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in reversed(works):
        assert work is not None
        work.wait()
    for i, tensor in enumerate(tensors):
        assert tensor.eq(float(sum(rank + i for rank in range(size)))).all()


def test_urgency_is_each_ranks_own_affair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEED_TRANSPORT", "tcp")
    run_ranks(urgent_at_one_rank, RANKS, backend="tweed")


def refused(rank: int, size: int) -> None:
    for tensor, urgency, words in (
        (torch.ones(3, 4).t(), 1, "not contiguous"),
        (torch.ones(3, device="meta"), 1, "on meta"),
        (torch.ones(3), 1 << 31, "does not fit into 32 bits"),
    ):
        with pytest.raises(UsageError, match=words):
            set_urgency(tensor, urgency)


def test_what_cannot_be_urgent_is_refused() -> None:
    run_ranks(refused, 1, backend="tweed")


def test_a_group_of_another_backend_knows_no_urgency() -> None:
    run_ranks(refused_by_gloo, 1, backend="gloo")


def refused_by_gloo(rank: int, size: int) -> None:
    with pytest.raises(UsageError, match="not of the backend 'tweed'"):
        set_urgency(torch.ones(3), 1)
