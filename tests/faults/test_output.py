"""A stderr that nobody reads, or that is closed, is no reason to end a rank."""

from __future__ import annotations

import os
import sys

import pytest
import torch
import torch.distributed as dist

from tests.faults.ring import caught, part, store
from tweed.testbed import run_ranks
from tweed.torch import backend


def lose_stderr(how: str) -> None:
    read, write = os.pipe()
    os.close(read)
    if how == "broken":
        os.dup2(write, 2)
    elif how == "closed":
        os.close(2)
    else:
        sys.stderr.close()


def is_warned_in_vain(rank: int, size: int, how: str) -> str:
    """Rank 1 never comes: rank 0 is warned before its deadline, and says how a new group is linked."""
    meeting = store()
    for _ in range(6):
        dist.all_reduce(torch.ones(4))
    if rank == 0:
        backend._print_once.cache_clear()
        lose_stderr(how)
    group = dist.new_group()  # rank 0 prints a line
    total = torch.ones(1)
    dist.all_reduce(total, group=group)
    kind = caught(lambda: dist.all_reduce(torch.ones(4))).kind if rank == 0 else ""
    meeting.set("rank 0 has given up", "") if rank == 0 else meeting.get("rank 0 has given up")
    dist.all_reduce(total, group=group)
    part(rank, size, meeting)
    return f"{kind} {total.item()}"


@pytest.mark.parametrize("how", ["broken", "closed", "shut in Python"])
def test_a_lost_stderr_ends_no_rank(how: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEED_DEADLINE", "1")
    first, second = run_ranks(is_warned_in_vain, 2, how, backend="tweed")
    assert (first, second) == ("DeadlineExceeded 4.0", " 4.0")
