"""A rank that dies, or leaves: every survivor is told who and where, at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from tests.faults.ring import Outcome, caught, endings, hear_all, part, store
from tweed.testbed import Ranks, run_ranks, say

SOON_S = 2.0  # what users are promised
AT_ONCE_S = 0.5  # the same, whatever children the dead rank has

WAITS: dict[str, Callable[[torch.Tensor], object]] = {
    "at_once": lambda tensor: dist.all_reduce(tensor),
    "work": lambda tensor: dist.all_reduce(tensor, async_op=True).wait(),
    "future": lambda tensor: dist.all_reduce(tensor, async_op=True).get_future().wait(),
}


def waits_until_the_end(rank: int, size: int, how: str) -> Outcome:
    """As `reduces_until_the_end`, in one of these ways."""
    tensor = torch.zeros(1_000_000)
    WAITS[how](tensor)
    say("under way")
    return caught(lambda: WAITS[how](tensor), repeat=True)


@pytest.mark.parametrize("how", WAITS)
def test_every_survivor_of_a_kill_names_rank_and_operation_soon(
    how: str, way: str, around_a_ring: None
) -> None:
    with Ranks(waits_until_the_end, 4, how, backend="tweed") as ranks:
        hear_all(ranks)
        killed = time.monotonic()
        ranks.kill(2)
        survivors = endings(ranks, 3)
    assert sorted(survivors) == [0, 1, 3]
    for kind, text, when in survivors.values():
        assert "rank 2" in text
        assert "all_reduce" in text
        assert when - killed < SOON_S
        # The future of a Python group passes through torch.futures, which keeps the text alone.
        assert kind == "PeerLost" or (how == "future" and way.startswith("python") and "PeerLost" in text)


def items(number: int) -> torch.utils.data.DataLoader[int]:
    """Of workers that are forked, and go on until their parent has gone."""
    return torch.utils.data.DataLoader(range(64), num_workers=number, multiprocessing_context="fork")  # type: ignore[arg-type]


def has_workers(rank: int, size: int) -> tuple[Outcome, int, int]:
    """Their workers are forked while there are links. Those of the survivors go on, and new ones come."""
    dist.barrier()
    batches = iter(items(4))
    first = next(batches)
    outcome = waits_until_the_end(rank, size, "at_once")
    return outcome, len(first) + sum(1 for _ in batches), sum(1 for _ in items(2))


def test_a_kill_is_heard_of_in_half_a_second_though_four_workers_live(way: str) -> None:
    with Ranks(has_workers, 4, backend="tweed") as ranks:
        hear_all(ranks)
        workers = os.getpgid(ranks.pid(2))
        killed = time.monotonic()
        ranks.kill(2)
        try:
            survivors = endings(ranks, 3)
        finally:
            os.killpg(workers, signal.SIGKILL)
    latest_s = max(outcome.when - killed for outcome, *_ in survivors.values())
    print(f"{way}: PeerLost {latest_s * 1e3:.0f} ms after the kill")
    for outcome, before, after in survivors.values():
        outcome.must_be("PeerLost", "rank 2")
        assert outcome.when - killed < AT_ONCE_S
        assert before == after == 64


def dies_in_backward(rank: int, size: int) -> Outcome:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    loss = model(torch.ones(2, 4)).sum()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return caught(loss.backward)


def test_a_killed_rank_ends_the_backward_pass() -> None:
    with Ranks(dies_in_backward, 2, backend="tweed") as ranks:
        endings(ranks, 1)[0].must_be("PeerLost", "rank 1")


def leaves_early(rank: int, size: int) -> Outcome:
    """Rank 2 makes one call less than the others, and lives on."""
    tensor, meeting = torch.ones(100_000), store()
    dist.all_reduce(tensor)
    # The first call that fails ends the group, also for who has yet to get the result of the one before.
    meeting.set(f"{rank} has a sum", "")
    if rank == 2:
        meeting.wait([f"{other} has a sum" for other in range(size)])
        dist.destroy_process_group()
        meeting.get("another has failed")
    outcome = caught(lambda: dist.all_reduce(tensor) if rank != 2 else None)
    meeting.set("another has failed", "")
    part(rank, size, meeting)
    return outcome


def test_who_waits_for_a_rank_that_has_left_the_group_is_told(way: str, around_a_ring: None) -> None:
    outcomes = run_ranks(leaves_early, 4, backend="tweed")
    for rank in (0, 1, 3):
        outcomes[rank].must_be("PeerLost", "rank 2", "has left the group")


def is_behind(rank: int, size: int) -> Outcome | None:
    """Rank 1 waits in the first call for rank 3, which does not come; rank 0 is in the next, which fails."""
    outcome, tensor, meeting = None, torch.ones(100), store()
    dist.barrier()
    if rank == 3:
        meeting.get("1 has failed")
    else:
        work = dist.reduce(tensor, 1, async_op=True)
    if rank == 2:
        meeting.get("0 goes on")
        part(rank, size, meeting)
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 0:
        work = dist.all_reduce(tensor.clone(), async_op=True)
        meeting.set("0 goes on", "")
    if rank < 2:
        outcome = caught(work.wait)
        meeting.set(f"{rank} has failed", "")
    part(rank, size, meeting)
    return outcome


def test_who_is_behind_is_told_that_a_later_call_has_failed(way: str) -> None:
    with Ranks(is_behind, 4, backend="tweed") as ranks:
        survivors = endings(ranks, 3)
    for rank in (0, 1):
        survivors[rank].must_be("PeerLost", "rank 2")


def ends_at_once(rank: int, size: int, numel: int = 50_000) -> list[float]:
    """All leave as soon as they have their own result: others may still be at it."""
    sums = []
    for number in range(20):
        group = dist.new_group()
        tensor = torch.full((numel,), float(number))
        dist.all_reduce(tensor, group=group)
        dist.destroy_process_group(group)
        sums.append(tensor[-1].item())
    return sums


def test_leaving_overtakes_no_values(way: str) -> None:
    for sums in run_ranks(ends_at_once, 3, backend="tweed"):
        assert sums == [3.0 * number for number in range(20)]
