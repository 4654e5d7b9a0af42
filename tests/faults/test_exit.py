"""The end of a rank that has made its last call: it costs no other its own, and hangs or crashes nowhere."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.faults.conftest import WAYS, take
from tests.faults.ring import caught, endings, hear_all, part, store
from tweed.testbed import Failed, Network, Ranks, opened, say
from tweed.torch import node


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


def ends_as_an_interpreter(rank: int, size: int, folder: Path) -> None:
    """Destroys no group, and runs what Python runs at its end, in a fork that need not import torch.

    Rank 0 has calls under way, and a callback that never returns.
    """
    atexit.unregister(os._exit)  # the fork server's, which spares ranks their end
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # other libraries print about leaks
    meeting = dist.FileStore(str(folder / "store"), size)
    dist.init_process_group("tweed", store=meeting, rank=rank, world_size=size, timeout=timedelta(seconds=30))
    dist.all_reduce(torch.ones(1000))
    if rank == 0:
        held = [dist.irecv(torch.zeros(4), 1, tag=7), dist.all_reduce(torch.ones(4), async_op=True)]
        held[1].get_future().then(lambda done: threading.Event().wait())
    meeting.set(f"{rank} is ready", "")
    meeting.get(f"{1 - rank} is ready")
    atexit.register((folder / str(rank)).touch)
    ctypes.pythonapi.Py_Exit(7)


Ends = dict[str, tuple[Ranks, Path]]


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ends]:
    """Ranks that end, in all ways at once: a callback that never returns is given some seconds."""
    with ExitStack() as ending:
        started = {}
        for name, way in WAYS.items():
            with pytest.MonkeyPatch.context() as patch:
                take(way, patch)
                folder = tmp_path_factory.mktemp("end")
                started[name] = ending.enter_context(Ranks(ends_as_an_interpreter, 2, folder)), folder
        yield started


def test_an_interpreter_ends_well_with_its_group_and_calls_and_callbacks_under_way(
    way: str, ends: Ends
) -> None:
    ranks, folder = ends[way]
    failed: list[Failed] = []
    while len(failed) < 2:
        events = ranks.poll(30)
        assert events, f"no end of ranks {ranks.running()}"
        failed += [event for event in events if isinstance(event, Failed)]
    assert all("left with exit code 7" in event.text for event in failed), failed
    assert {path.name for path in folder.iterdir()} >= {"0", "1"}


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


def leaves_behind_a_cut_link(rank: int, size: int, folder: Path) -> str:
    """Rank 0 leaves while nothing gets through. Rank 1 speaks to it meanwhile, and hears why it is gone."""
    meeting = dist.FileStore(str(folder / "store"), size + 1)
    dist.all_reduce(torch.ones(4))
    say("under way")
    meeting.get("the link is cut")
    if rank == 0:
        node.leave()
        return "left"
    said = dist.isend(torch.ones(4), 0)  # were the connection closed, this would have it reset
    meeting.get("the link is healed")
    outcome = caught(lambda: dist.recv(torch.ones(4), 0))
    del said
    return outcome.text


def test_a_rank_that_leaves_stays_until_the_others_can_know(
    namespaces: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWEED_TRANSPORT", "tcp")
    meeting = dist.FileStore(str(tmp_path / "store"), 3)
    with (
        opened(Network(), 2) as bed,
        Ranks(leaves_behind_a_cut_link, 2, tmp_path, bed=bed, backend="tweed") as ranks,
    ):
        hear_all(ranks)
        bed.cut(0)
        meeting.set("the link is cut", "")
        assert ranks.poll(1.5) == []
        bed.heal(0)
        meeting.set("the link is healed", "")
        left, why = ranks.join(30)
    assert left == "left"
    assert "left" in why, why
