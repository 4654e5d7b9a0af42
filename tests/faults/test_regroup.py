"""A group that has failed costs no other one, and can be made anew in the same process."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.faults.ring import Outcome, caught, endings, part, store
from tests.faults.soak import soak
from tweed.testbed import Ranks, run_ranks, say


def loses_one_of_two_groups(rank: int, size: int) -> tuple[Outcome, float]:
    """Rank 2 belongs to one of them alone, and dies."""
    pair = dist.new_group([0, 1])
    value = torch.ones(1000)
    dist.all_reduce(value)
    if rank == 2:
        os._exit(0)
    outcome = caught(lambda: dist.all_reduce(value))
    for _ in range(20):
        dist.all_reduce(value.fill_(1.0), group=pair)
    dist.barrier(group=pair)  # rank 0 has the store
    return outcome, value[-1].item()


def test_of_two_groups_of_which_one_fails_the_other_goes_on(way: str) -> None:
    with Ranks(loses_one_of_two_groups, 3, backend="tweed") as ranks:
        found = endings(ranks, 2)
    assert sorted(found) == [0, 1]
    for outcome, total in found.values():
        assert outcome.kind == "PeerLost"
        assert "rank 2" in outcome.text
        assert total == 2.0


def cut_all_links() -> int:
    """Ends every connection of the engine, as a box between two hosts does. torch's store keeps its own."""
    cut = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as link:
                if link.type == socket.SOCK_STREAM and "tweed" in _names(link):
                    link.shutdown(socket.SHUT_RDWR)
                    cut += 1
        except OSError:
            pass  # closed meanwhile, no socket, or not connected
    return cut
