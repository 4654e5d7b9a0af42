"""A rank that stops, or does something else: the deadline fires, and all ranks name that one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.faults.conftest import WAYS, ring_of, take
from tests.faults.ring import Outcome, caught, endings, part, store
from tweed.testbed import Ranks, run_ranks

DEADLINE_S = "2"  # ranks of a busy machine start a second apart
Started = dict[Callable[..., Any], Ranks]


@pytest.fixture(autouse=True)
def deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEED_DEADLINE", DEADLINE_S)


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """In place of the one for single tests."""
    return str(request.param)


@pytest.fixture(scope="module")
def started(way: str) -> Iterator[Started]:
    """The ranks of all tests that wait for a deadline, in one of the ways: started at once."""
    running = {}
    with ExitStack() as ending:
        for fn, size in TOGETHER.items():
            with pytest.MonkeyPatch.context() as patch:
                take(WAYS[way], patch)
                patch.setenv("TWEED_DEADLINE", DEADLINE_S)
                if fn in (stops, calls_something_else):
                    ring_of(way, patch)
                running[fn] = ending.enter_context(Ranks(fn, size, backend="tweed"))
        yield running


def culprit_is(outcome: Outcome, *words: str) -> None:
    """It is a missed deadline, and one line of it has these words of the culprit."""
    (line,) = [line for line in outcome.text.splitlines() if line.strip().startswith("culprit:")]
    outcome._replace(text=line).must_be("DeadlineExceeded", *words)


def stops(rank: int, size: int) -> Outcome:
    tensor = torch.zeros(100_000)
    for _ in range(5):
        dist.all_reduce(tensor)
    if rank == 2:
        os.kill(os.getpid(), signal.SIGSTOP)
    return caught(lambda: dist.all_reduce(tensor))


def test_a_stopped_rank_is_named_by_all_others(way: str, started: Started) -> None:
    ranks = started[stops]
    survivors = endings(ranks, 3)
    pid = ranks.pid(2)
    ranks.kill(2, signal.SIGCONT)
    (late,) = endings(ranks, 1).values()
    assert sorted(survivors) == [0, 1, 3]
    missing = "3 for 0, 1, 2" if "ltp" in way else "3 for 2"
    for outcome in survivors.values():
        outcome.must_be("DeadlineExceeded", f"kill -CONT {pid}", "all_reduce float32 [100000]", missing)
        culprit_is(outcome, f"(process {pid}, ", "rank 2 on ", "is stopped")
    assert late.kind in ("DeadlineExceeded", "PeerLost")


def stops_in_the_middle(rank: int, size: int) -> Outcome:
    """The others' part of the second call is there already when it stops."""
    tensor = torch.zeros(500_000)
    dist.all_reduce(tensor)
    if rank == 1:
        works = [dist.all_reduce(torch.zeros(500_000), async_op=True) for _ in range(2)]
        os.kill(os.getpid(), signal.SIGSTOP)
        return caught(lambda: [work.wait() for work in works])
    return caught(lambda: dist.all_reduce(tensor), repeat=True)


def test_a_rank_that_stops_within_a_call_is_named(started: Started) -> None:
    survivors = endings(started[stops_in_the_middle], 2)
    assert sorted(survivors) == [0, 2]
    for outcome in survivors.values():
        culprit_is(outcome, "rank 1 on ", "is stopped")


def calls_something_else(rank: int, size: int) -> Outcome:
    tensor = torch.zeros(4)
    dist.all_reduce(tensor)
    if rank == 1:
        store().get("another has failed")
    outcome = caught(lambda: dist.all_reduce(tensor))
    store().set("another has failed", "")
    part(rank, size)
    return outcome


def test_a_rank_that_never_calls_is_alive_and_elsewhere(started: Started) -> None:
    ranks = started[calls_something_else]
    outcomes = endings(ranks, 4)
    pid = ranks.pid(1)
    for outcome in outcomes.values():
        last = "its last call here, all_reduce, ended"
        culprit_is(outcome, "rank 1 on ", "is alive and has not called it", last)
        assert f"py-spy dump --pid {pid}" in outcome.text


OTHERS = 1000.0


def stops_while_its_memory_is_read(rank: int, size: int) -> tuple[str, float, float]:
    """Rank 1 is stopped; the call fails at rank 0, which uses its memory again, then rank 1 goes on."""
    first, second = (dist.new_group([0, other], timeout=timedelta(seconds=20)) for other in (1, 2))
    meeting, value = store(), torch.full((100_000,), 1.0)
    outcome = Outcome("", "", 0.0)
    if rank == 0:
        pid = int(meeting.get("rank 1 has called"))
        time.sleep(0.2)
        os.kill(pid, signal.SIGSTOP)
        outcome = caught(lambda: dist.all_reduce(value, group=first))
        meeting.set("rank 0 goes on", "")
        dist.all_reduce(torch.full((100_000,), OTHERS), group=second)
        os.kill(pid, signal.SIGCONT)
    elif rank == 1:
        work = dist.all_reduce(value, group=first, async_op=True)
        meeting.set("rank 1 has called", str(os.getpid()))
        outcome = caught(work.wait)
    else:
        meeting.get("rank 0 goes on")  # it may be no later than the deadline either
        dist.all_reduce(torch.full((100_000,), OTHERS), group=second)
    part(rank, size, meeting)
    return outcome.kind, value.min().item(), value.max().item()


def test_a_late_rank_never_gets_the_bytes_of_another_group(way: str, started: Started) -> None:
    found = endings(started[stops_while_its_memory_is_read], 3)
    for kind, low, high in (found[0], found[1]):
        # Over wires all of its part may have left before it was stopped, and the others' come after that.
        assert kind in ("DeadlineExceeded", "PeerLost") or ("shm" not in way and low == high == 2.0)
        assert high < OTHERS


def waits_in_another_group(rank: int, size: int) -> Outcome:
    """Rank 1 waits for rank 2 in a group of these two, and rank 2 waits for nobody."""
    pair, meeting, outcome = dist.new_group([1, 2]), store(), Outcome("", "", 0.0)
    if rank == 0:
        work = dist.barrier(async_op=True)
        meeting.set("rank 0 has called", "")
        outcome = caught(work.wait)
        meeting.set("rank 0 has failed", "")
    elif rank == 1:
        meeting.get("rank 0 has called")
        time.sleep(0.5)  # so that rank 0's deadline passes while this one still waits
        outcome = caught(lambda: dist.barrier(group=pair))
    meeting.get("rank 0 has failed")  # nobody leaves the group before
    part(rank, size)
    return outcome


def test_a_rank_that_waits_in_another_group_says_so(started: Started) -> None:
    outcome = endings(started[waits_in_another_group], 3)[0]
    outcome.must_be("DeadlineExceeded", "rank 1 on ", "it has waited in barrier of group")


#: Ranks that do little but wait, in ways of which each starts all of them together.
TOGETHER: dict[Callable[..., Any], int] = {
    stops: 4,
    stops_in_the_middle: 3,
    calls_something_else: 4,
    stops_while_its_memory_is_read: 3,
    waits_in_another_group: 3,
}


def prints(rank: int, size: int, port: int, folder: Path) -> None:
    """Rank 1 does not call. What the process prints goes to a file, as engines print past Python."""
    file = os.open(folder / str(rank), os.O_WRONLY | os.O_CREAT)
    os.dup2(file, 2)
    meeting = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("tweed", store=meeting, rank=rank, world_size=size)
    if rank == 1:
        meeting.get("another has failed")
    for _ in range(2):
        caught(lambda: dist.all_reduce(torch.zeros(1)))
    meeting.set("another has failed", "")


def test_the_start_is_one_line_and_one_rank_warns_once(tmp_path: Path) -> None:
    meeting = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    run_ranks(prints, 3, meeting.port, tmp_path)
    said = "".join((tmp_path / str(rank)).read_text() for rank in range(3)).splitlines()
    start, warning = [line for line in said if line.startswith("tweed: ")]
    assert all(words in start for words in ("3 ranks", "by shared memory", "not sealed"))
    assert all(words in warning for words in ("all_reduce float32 [1]", "rank 1 on ", "It fails in"))
