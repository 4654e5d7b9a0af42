"""Several threads that call, and callbacks that wait: for another call, on this group and on another one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist

from tests.faults.ring import Outcome, caught, part, store
from tweed.testbed import run_ranks

CALLS = 30


def sums(group: Any, factor: float) -> list[float]:
    """One small sum after the other, each waited for."""
    found = []
    for number in range(CALLS):
        value = torch.full((4,), factor + number)
        dist.all_reduce(value, group=group)
        found.append(value[-1].item())
    return found


def in_threads(actions: list[Callable[[], Any]]) -> list[Any]:
    """What they return, each in a thread of its own but the first, which runs here."""
    with ThreadPoolExecutor(len(actions)) as pool:
        others = [pool.submit(action) for action in actions[1:]]
        return [actions[0](), *(other.result() for other in others)]


def calls_in_three_threads(rank: int, size: int) -> list[list[float]]:
    """Rank 1 is late with the call of the first thread: the others' calls go through meanwhile."""
    groups = [dist.new_group() for _ in range(2)]
    meeting, late = store(), torch.ones(4)

    def first() -> list[float]:
        if rank == 1:
            meeting.get("the others are through")
        dist.all_reduce(late)
        return late.tolist()

    def tell() -> None:
        if rank == 0:
            meeting.set("the others are through", "")

    others = threading.Barrier(2, action=tell)

    def other(number: int) -> list[float]:
        found = sums(groups[number], 100.0 * number)
        others.wait()
        return found

    found = in_threads([first, lambda: other(0), lambda: other(1)])
    part(rank, size, meeting)
    return found


def test_a_second_and_a_third_thread_call_while_the_first_waits(way: str) -> None:
    for first, *others in run_ranks(calls_in_three_threads, 2, backend="tweed"):
        assert first == [2.0] * 4
        assert others == [[2 * (100.0 * n + i) for i in range(CALLS)] for n in range(2)]


def waits_in_callbacks(rank: int, size: int) -> list[float]:
    """Each callback waits for a call that the other rank makes in its own, on one group after the other."""
    groups = [None, dist.new_group()]
    found = []
    for outer in groups:
        for inner in groups:
            value = torch.ones(1000)

            def then(done: Any, inner: Any = inner, value: torch.Tensor = value) -> torch.Tensor:
                work = dist.all_reduce(value, group=inner, async_op=True)
                return work.get_future().wait()[0]  # type: ignore[no-any-return]

            work = dist.all_reduce(value, group=outer, async_op=True)
            found.append(work.get_future().then(then).wait()[-1].item())
    part(rank, size)
    return found


def test_a_callback_may_wait_for_another_call_also_of_another_group(way: str) -> None:
    assert run_ranks(waits_in_callbacks, 2, backend="tweed") == [[4.0] * 4] * 2


def blocks_a_callback(rank: int, size: int) -> tuple[float, Outcome]:
    """Rank 0's callback waits for a message that rank 1 sends once they have made many calls more."""
    other, meeting = dist.new_group(), store()
    message = torch.zeros(1)
    if rank == 1:
        meeting.get("rank 0 has a callback")  # it would run on the thread of the caller otherwise
    work = dist.all_reduce(torch.ones(4), async_op=True)
    if rank == 0:
        blocked = work.get_future().then(lambda done: dist.recv(message, 1, group=other))
        meeting.set("rank 0 has a callback", "")
    found = sums(None, 1.0)
    if rank == 1:
        dist.send(torch.full((1,), found[-1]), 0, group=other)
        message.fill_(found[-1])
    outcome = caught(lambda: blocked.wait() if rank == 0 else None)
    part(rank, size)
    return message.item(), outcome


def test_a_callback_that_waits_for_long_holds_up_no_other_call(way: str) -> None:
    for message, outcome in run_ranks(blocks_a_callback, 2, timeout=30, backend="tweed"):
        assert outcome.kind == "", outcome.text
        assert message == 2.0 * CALLS
