"""Ctrl-C during a wait, and forks after the start."""

from __future__ import annotations

import os
import signal

import pytest
import torch
import torch.distributed as dist

from tests.faults.ring import caught, endings, hear_all, part, store
from tests.faults.test_killed import WAITS
from tweed.testbed import Ranks, run_ranks, say


def waits_for_ever(rank: int, size: int, how: str) -> str:
    if rank == 1:
        say("ready")
        store().get("rank 0 is through")
        part(rank, size)
        return "let go"
    try:
        say("ready")
        WAITS[how](torch.ones(4))
    except KeyboardInterrupt:
        return "interrupted"
    finally:
        store().set("rank 0 is through", "")
        part(rank, size)
    return "ended"


# Not `future`: torch's Future.wait looks at no signals, whatever completes it (docs/deadlines.md).
@pytest.mark.parametrize("how", ["at_once", "work"])
def test_ctrl_c_works_during_a_wait(how: str, way: str) -> None:
    with Ranks(waits_for_ever, 2, how, backend="tweed") as ranks:
        hear_all(ranks)
        ranks.kill(0, signal.SIGINT)
        assert endings(ranks, 2) == {0: "interrupted", 1: "let go"}


def forks(rank: int, size: int) -> str:
    """The child tells what it met through a pipe."""
    from tweed.torch.node import node

    read, write = os.pipe()
    if (child := os.fork()) == 0:
        reduce, start = caught(lambda: dist.all_reduce(torch.ones(1))), caught(node)
        os.write(write, f"{reduce.kind} {start.kind} {reduce.text}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    dist.all_reduce(torch.ones(1))  # the parent goes on
    return os.read(read, 1000).decode()


def test_a_fork_after_the_start_is_a_clear_error_in_the_child(way: str) -> None:
    for met in run_ranks(forks, 2, backend="tweed"):
        assert met.startswith("ForkedProcess ForkedProcess ")
        assert "is a fork of process" in met
        assert "call init_process_group in the child" in met
