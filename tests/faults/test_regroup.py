"""A group that has failed costs no other one, and can be made anew in the same process."""

from __future__ import annotations

import contextlib
import os
import random
import socket

import pytest
import torch
import torch.distributed as dist

from tests.faults.ring import Outcome, caught, endings
from tests.faults.soak import soak
from tweed.testbed import Ranks, run_ranks


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
        outcome.must_be("PeerLost", "rank 2")
        assert total == 2.0


def cut_all_links(kept_port: int) -> int:
    """Ends every connection of the engine, as a box between two hosts does; torch's store keeps its own."""
    cut = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as link:
            ends = link.getsockname(), link.getpeername()
            local = link.family == socket.AF_UNIX and any(end[:1] == b"\0" for end in ends)
            if local or (link.family == socket.AF_INET and ends[1][1] != kept_port):
                link.shutdown(socket.SHUT_RDWR)
                cut += 1
    return cut


def begins_anew(rank: int, size: int, port: int) -> tuple[int, Outcome, list[float]]:
    """Twice: the links are cut during a call, both make their group anew, and sum."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    cut, outcome, totals = 0, Outcome("", "", 0.0), []
    for turn in range(3):
        meeting = dist.PrefixStore(f"turn {turn}", store)
        dist.init_process_group("tweed", store=meeting, rank=rank, world_size=size)
        total = torch.ones(1000)
        dist.all_reduce(total)
        totals.append(total[-1].item())
        if turn < 2:
            meeting.set(f"rank {rank} has its sum", "")
            meeting.wait([f"rank {other} has its sum" for other in range(size)])
            if rank == 0:
                cut += cut_all_links(port)
            outcome = caught(lambda: [dist.all_reduce(torch.ones(1000)) for _ in range(1000)])
        dist.barrier() if turn == 2 else None
        dist.destroy_process_group()
    return cut, outcome, totals


def test_a_cut_link_is_peer_lost_and_the_group_is_made_anew_in_the_same_process(way: str) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    (cut, *_), _ = found = run_ranks(begins_anew, 2, store.port, timeout=30)
    assert cut >= 2
    for _, outcome, totals in found:
        outcome.must_be("PeerLost")
        assert totals == [2.0] * 3


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_after_kills_the_survivors_go_on_with_new_processes(transport: str) -> None:
    with soak(transport, seed=random.SystemRandom().getrandbits(32)) as run:  # printed by what fails
        for _ in range(6):
            run.kill()
    assert run.sums > 0
    assert abs(run.held[-1].descriptors - run.held[0].descriptors) < 16
