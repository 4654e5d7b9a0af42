"""Faults of groups that send by LTP, over a lossy network: named errors or recovery, never a wrong sum."""

from __future__ import annotations

import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.faults.ring import Outcome, endings, hear_all, part, reduces_until_the_end
from tests.faults.test_killed import ends_at_once
from tests.torch.test_lossy import contribution, group_over_packets, reduce_round
from tweed.testbed import Network, Ranks, opened, say
from tweed.transport import Ltp

LOSSY = Network(loss=0.02)
#: Values of a tensor that is below what may lose parts.
SHORT = 10_000
NUMEL, ROUNDS = 100_000, 60


@pytest.fixture
def over_packets(namespaces: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks' first group sends by LTP, too."""
    monkeypatch.setenv("TWEED_TRANSPORT", "ltp")


@pytest.mark.parametrize("server", ["", "0", "2"])
def test_every_survivor_of_a_kill_names_rank_and_operation(
    server: str, over_packets: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWEED_SERVER", server)
    with opened(LOSSY, 4) as bed, Ranks(reduces_until_the_end, 4, bed=bed, backend="tweed") as ranks:
        hear_all(ranks)
        ranks.kill(2)
        survivors = endings(ranks, 3)
    for outcome in survivors.values():
        outcome.must_be("PeerLost", "rank 2", "all_reduce")


def test_leaving_overtakes_no_values(over_packets: None) -> None:
    with opened(LOSSY, 3) as bed, Ranks(ends_at_once, 3, SHORT, bed=bed, backend="tweed") as ranks:
        for sums in ranks.join(60):
            assert sums == [3.0 * number for number in range(20)]


def sums_a_little(rank: int, size: int, path: str) -> list[float]:
    """Leaves as soon as it has its own results. Its store is a file: torch's would wait for packets, too."""
    dist.init_process_group("tweed", store=dist.FileStore(path, size), rank=rank, world_size=size)
    tensors = [torch.full((SHORT,), float(number)) for number in range(5)]
    for tensor in tensors:
        dist.all_reduce(tensor)
    dist.destroy_process_group()
    return [tensor[-1].item() for tensor in tensors]


def test_a_group_is_made_where_three_packets_of_ten_are_lost(over_packets: None, tmp_path: Path) -> None:
    """Introductions, and what is said last, go over TCP, which waits ever longer before it sends again."""
    store = str(tmp_path / "store")
    with opened(Network(loss=0.3), 2) as bed, Ranks(sums_a_little, 2, store, bed=bed) as ranks:
        for sums in ranks.join(120):
            assert sums == [2.0 * number for number in range(5)]


def keeps_account(rank: int, size: int) -> int:
    """Sums of which every number is either applied or told to be lost; returns how many were lost."""
    group = group_over_packets(Ltp(fraction=0.9, slack_s=0.0))
    lost = 0
    for number in range(ROUNDS):
        if number == 5:
            say("under way")
        told = reduce_round(group, number, NUMEL, torch.float32)
        holes = told.lost.clone()
        dist.all_reduce(holes)
        sent = [contribution(other, number, NUMEL, torch.float32) for other in range(size)]
        assert torch.equal(told.result + holes, sum(sent[1:], start=sent[0]))
        lost += int((told.lost != 0).sum())
    part(rank, size)
    return lost


def test_a_path_that_drops_everything_for_a_while_recovers(namespaces: None) -> None:
    with opened(LOSSY, 3) as bed, Ranks(keeps_account, 3, bed=bed, backend="tweed") as ranks:
        hear_all(ranks)
        bed.cut(1)
        assert ranks.poll(1.0) == []
        bed.heal(1)
        assert sum(ranks.join(60)) > 0


def test_a_rank_that_stands_still_for_a_while_goes_on(namespaces: None) -> None:
    with opened(LOSSY, 3) as bed, Ranks(keeps_account, 3, bed=bed, backend="tweed") as ranks:
        hear_all(ranks)
        ranks.kill(1, signal.SIGSTOP)
        assert ranks.poll(1.0) == []
        ranks.kill(1, signal.SIGCONT)
        assert sum(ranks.join(60)) > 0


def waits_two_seconds(rank: int, size: int) -> Outcome:
    """All-reduces of a group that allows no more."""
    group = dist.new_group(backend="tweed", timeout=timedelta(seconds=2))
    return reduces_until_the_end(rank, size, group)


def test_a_path_that_stays_cut_is_named(over_packets: None) -> None:
    with opened(LOSSY, 3) as bed, Ranks(waits_two_seconds, 3, bed=bed, backend="tweed") as ranks:
        hear_all(ranks)
        bed.cut(1)
        for rank, outcome in endings(ranks, 3).items():
            outcome.must_be("DeadlineExceeded", "all_reduce", "rank 1" if rank != 1 else "")


def trains(rank: int, size: int) -> tuple[list[float], list[float]]:
    """Losses of DDP, and a few parameters at the end."""
    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(32, 64, generator=torch.Generator().manual_seed(rank))
    labels = inputs[:, :8].argmax(1)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [float(parameter.sum()) for parameter in model.parameters()]


def test_ddp_trains(over_packets: None) -> None:
    with opened(LOSSY, 3) as bed, Ranks(trains, 3, bed=bed, backend="tweed") as ranks:
        found = ranks.join(60)
    for losses, parameters in found:
        assert losses[-1] < losses[0] / 2
        assert parameters == found[0][1]  # the way back is always whole


def mixes(rank: int, size: int, seed: int) -> int:
    """Collectives of all kinds and sizes, many at a time, in two groups, checked against a count."""
    chance = torch.Generator().manual_seed(seed)
    groups = [None, group_over_packets(Ltp())]
    waiting: list[Any] = []
    done = 0
    for number in range(150):
        kind, power, which = torch.randint(0, 60, (3,), generator=chance).tolist()
        group, numel = groups[which % 2], 1 << (power % 17)
        waiting.append(start(kind % 6, number, numel, group))
        if len(waiting) == 8 or number == 149:
            for work, check in waiting:
                work.wait()
                check()
                done += 1
            waiting.clear()
    return done


def start(kind: int, number: int, numel: int, group: Any) -> tuple[Any, Any]:
    """One collective, and what must hold when it has ended. Whole numbers and copies lose nothing."""
    rank, size = dist.get_rank(), dist.get_world_size()
    numbers = contribution(rank, number, numel, torch.int64)
    total = sum(contribution(other, number, numel, torch.int64) for other in range(size))
    same = torch.testing.assert_close
    if kind == 0:
        return dist.all_reduce(numbers, group=group, async_op=True), lambda: same(numbers, total)
    if kind == 1:
        floats = numbers.float()
        most = contribution(0, number, numel, torch.float32).max() * size * 2

        def within() -> None:
            assert ((floats >= 0) & (floats <= most)).all()
            assert (floats <= total).all()

        return dist.all_reduce(floats, group=group, async_op=True), within
    if kind == 2:
        root = number % size
        copied = numbers.float()
        wanted = contribution(root, number, numel, torch.float32)
        return dist.broadcast(copied, root, group=group, async_op=True), lambda: same(copied, wanted)
    if kind == 3:
        parts = [torch.empty_like(numbers) for _ in range(size)]
        wanted = [contribution(other, number, numel, torch.int64) for other in range(size)]
        return dist.all_gather(parts, numbers, group=group, async_op=True), lambda: same(parts, wanted)
    if kind == 4:
        own = torch.empty_like(numbers)
        work = dist.reduce_scatter(own, [numbers] * size, group=group, async_op=True)
        return work, lambda: same(own, total)
    out = torch.empty(size, dtype=torch.bool)
    work = dist.all_to_all_single(out, torch.full((size,), rank % 2 == 0), group=group, async_op=True)
    return work, lambda: same(out, torch.arange(size) % 2 == 0)


@pytest.mark.parametrize(("loss", "seed"), [(0.01, 1), (0.03, 2)])
def test_mixed_collectives_in_flight(loss: float, seed: int, over_packets: None) -> None:
    with opened(Network(loss=loss), 3) as bed, Ranks(mixes, 3, seed, bed=bed, backend="tweed") as ranks:
        assert ranks.join(120) == [150] * 3
