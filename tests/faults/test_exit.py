"""The end of a rank that has made its last call: it costs no other its own, and hangs or crashes nowhere."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import torch
import torch.distributed as dist

from tests.faults.ring import caught, endings, part, store
from tweed.testbed import Ranks
from tweed.torch import node

_ROOT = Path(__file__).parents[2]


def ends_before_the_others_come(rank: int, size: int, call: str) -> float | None:
    """Rank 0 sends and leaves as an interpreter does; the others begin their last call when it has."""
    value = torch.full((50_000,), 3.0 if rank == 0 else 0.0)
    meeting = store()
    if rank == 0:
        dist.broadcast(value, 0) if call == "broadcast" else dist.send(value, 1)
        node.leave()
        meeting.set("rank 0 has left", "")
        for other in range(1, size):
            meeting.get(f"{other} is through")
        return None
    meeting.get("rank 0 has left")
    problem = None
    if call == "broadcast" or rank == 1:
        problem = caught(lambda: dist.broadcast(value, 0) if call == "broadcast" else dist.recv(value, 0))
    meeting.set(f"{rank} is through", "")
    return f"{problem.kind} {problem.text}" if problem and problem.kind else value.sum().item()


def test_a_last_call_that_others_have_not_come_to_yet_reaches_them(way: str) -> None:
    for call in ("broadcast", "send"):
        with Ranks(ends_before_the_others_come, 2, call, backend="tweed") as ranks:
            assert endings(ranks, 2) == {0: None, 1: 150_000.0}


_SCRIPT = """
import datetime, sys, threading, torch, torch.distributed as dist
rank = int(sys.argv[1])
store = dist.FileStore(sys.argv[2], 2)
dist.init_process_group("tweed", store=store, rank=rank, world_size=2, timeout=datetime.timedelta(seconds=30))
value = torch.ones(1000)
dist.all_reduce(value)
if rank == 0:
    never = dist.irecv(torch.zeros(4), 1, tag=7)
    work = dist.all_reduce(torch.ones(4), async_op=True)
    work.get_future().then(lambda done: threading.Event().wait())
    store.set("rank 0 has a callback", "")
store.get("rank 0 has a callback")
print("end of", rank, flush=True)
"""


def test_an_interpreter_ends_well_with_calls_and_callbacks_under_way(way: str, tmp_path: Path) -> None:
    start = [sys.executable, "-c", _SCRIPT]
    ranks = [
        subprocess.Popen(
            [*start, str(rank), str(tmp_path / "store")],
            cwd=_ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    texts = [rank.communicate(timeout=60)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], texts
    assert "end of 0" in texts[0]


def drops_its_node_while_a_callback_runs(rank: int, size: int) -> str:
    """The callback runs on a thread of the engine that rank 0 waits for, and needs Python to go on."""
    meeting = store()
    if rank == 1:
        meeting.get("rank 0 has a callback")  # it would run on the thread of the caller otherwise
        dist.all_reduce(torch.ones(1))
        caught(lambda: dist.recv(torch.zeros(1), 0))  # until rank 0 leaves
        meeting.set("rank 0 leaves", "")
        part(rank, size, meeting)
        return "told"
    work = dist.all_reduce(torch.ones(1), async_op=True)
    begun, ended = threading.Event(), threading.Event()

    def called(_done: object) -> None:
        begun.set()
        meeting.get("rank 0 leaves")
        ended.set()

    work.get_future().then(called)
    meeting.set("rank 0 has a callback", "")
    begun.wait()
    del work
    dist.destroy_process_group()
    node._nodes.clear()
    gc.collect()  # the node goes here at the latest
    found = ended.is_set()
    part(rank, size, meeting)
    return "after its callback" if found else "before its callback"


def test_a_node_is_dropped_without_the_interpreters_lock(way: str) -> None:
    with Ranks(drops_its_node_while_a_callback_runs, 2, backend="tweed") as ranks:
        assert endings(ranks, 2) == {0: "after its callback", 1: "told"}
