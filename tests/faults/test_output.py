"""Output that nobody reads, or that is closed, is no reason to end a rank."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import torch
import torch.distributed as dist

from tests.faults.conftest import WAYS, take
from tests.faults.ring import caught, part, store
from tweed.testbed import Ranks
from tweed.torch import backend


def lose(stream: str, how: str) -> None:
    number = 1 if stream == "stdout" else 2
    read, write = os.pipe()
    os.close(read)
    if how == "broken":
        os.dup2(write, number)
    elif how == "closed":
        os.close(number)
    else:
        getattr(sys, stream).close()


def is_warned_in_vain(rank: int, size: int, stream: str, how: str) -> str:
    """Rank 1 never comes: rank 0 is warned before its deadline, and says how a new group is linked."""
    meeting = store()
    for _ in range(6):
        dist.all_reduce(torch.ones(4))
    if rank == 0:
        backend._print_once.cache_clear()
        lose(stream, how)
    group = dist.new_group()  # rank 0 prints a line
    total = torch.ones(1)
    dist.all_reduce(total, group=group)
    kind = caught(lambda: dist.all_reduce(torch.ones(4))).kind if rank == 0 else ""
    meeting.set("rank 0 has given up", "") if rank == 0 else meeting.get("rank 0 has given up")
    dist.all_reduce(total, group=group)
    part(rank, size, meeting)
    return f"{kind} {total.item()}"


LOST = [(stream, how) for stream in ("stderr", "stdout") for how in ("broken", "closed", "shut in Python")]


@pytest.fixture(scope="module", params=WAYS)
def started(request: pytest.FixtureRequest) -> Iterator[dict[tuple[str, str], Ranks]]:
    """The ranks of all tests of a way, started at once: they wait for a deadline."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as ending:
        take(WAYS[request.param], patch)
        patch.setenv("TWEED_DEADLINE", "1")
        yield {
            lost: ending.enter_context(Ranks(is_warned_in_vain, 2, *lost, backend="tweed")) for lost in LOST
        }


@pytest.mark.parametrize(("stream", "how"), LOST)
def test_a_lost_stream_ends_no_rank(stream: str, how: str, started: dict[tuple[str, str], Ranks]) -> None:
    assert started[stream, how].join(30) == ["DeadlineExceeded 4.0", " 4.0"]
