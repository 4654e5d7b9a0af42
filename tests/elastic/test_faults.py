"""Live members that other things befall: a split network, a full disk, a wrong secret, a busy machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import permutations, product
from pathlib import Path
from threading import Thread

import pytest
import torch
import torch.distributed as dist

from tests.elastic.fault_trains import (
    Outcome,
    comes_together,
    copies,
    on_a_full_disk,
    parted,
    stops_and_busy,
    too_slow,
    twins,
    waits,
)
from tests.elastic.trains import witnessing
from tests.faults.ring import endings, hear
from tests.simulate.test_elastic import trained
from tweed.elastic import Elastic, join, start
from tweed.errors import DeadlineExceeded, UsageError
from tweed.testbed import Network, Ranks, Said, opened
from tweed.testbed.fault_injector import FaultInjector
from tweed.testbed.faults import Plan


def store() -> dist.TCPStore:
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def are_as_undisturbed(ended: Sequence[Outcome]) -> None:
    assert len({(one.digest, one.steps_done) for one in ended}) == 1
    expected = trained(Plan(), steps=ended[0].steps_done).params
    assert torch.allclose(ended[0].params, expected, rtol=0, atol=1e-12)


def test_fewer_members_than_the_minimum_wait_say_why_and_go_on_with_one_that_joins(tmp_path: Path) -> None:
    place = store()
    with witnessing(tmp_path / "state") as witness, Ranks(waits, 4, place.port, witness.address) as ranks:
        why = "waiting for members: 2 members are here, and there must be 3"
        hear(ranks, {0: why, 1: why})
        ranks.restart(3)
        ended = endings(ranks, 3)
    assert ended.keys() == {0, 1, 3}
    # One may have died an epoch before the other; then too few are left.
    assert ended[0].epochs[0] == 1 and len(ended[3].epochs) == 1
    assert {one.epochs[-1] for one in ended.values()} == {ended[3].epochs[0]} < {2, 3}
    are_as_undisturbed([*ended.values()])


@pytest.mark.usefixtures("namespaces")
def test_of_a_network_that_is_split_in_halves_one_goes_on_and_the_other_says_why_it_waits(
    tmp_path: Path,
) -> None:
    halves = {0, 1}, {2, 3}
    ways = [way for one, other in product(*halves) for way in ((one, other), (other, one))]
    with opened(Network(rate_bits=1e9), 4) as bed, Ranks(parted, 4, tmp_path, bed=bed) as ranks:
        hear(ranks, dict.fromkeys(range(4), "epoch 1"))
        bed.cut_ways(ways)
        waits, why = set[int](), "waiting for members: 2 of the 4 that decide"
        while waits not in halves:
            events = ranks.poll(30)
            assert events and all(isinstance(event, Said) for event in events), events
            waits |= {one.rank for one in events if isinstance(one, Said) and one.value.startswith(why)}
        bed.heal_ways(ways)
        evicted = endings(ranks, 2)
        (tmp_path / "over").touch()
        found = evicted | endings(ranks, 2)
    assert evicted.keys() == waits
    assert all("the others have gone on without this process" in text for _, text in evicted.values())
    goes_on = [found[rank] for rank in found.keys() - waits]
    assert min(found.values())[0] in {key for key, _ in goes_on}, "it has the lowest key"
    are_as_undisturbed([one for _, one in goes_on])
    assert goes_on[0][1].epochs == goes_on[1][1].epochs


@pytest.mark.usefixtures("namespaces")
def test_of_a_network_that_is_split_in_thirds_none_goes_on_and_all_come_together_again(
    tmp_path: Path,
) -> None:
    ways = [(one, other) for one, other in permutations(range(6), 2) if one // 2 != other // 2]
    with opened(Network(rate_bits=1e9), 6) as bed, Ranks(comes_together, 6, tmp_path, bed=bed) as ranks:
        hear(ranks, dict.fromkeys(range(6), "trains"))
        bed.cut_ways(ways)
        hear(ranks, dict.fromkeys(range(6), "waiting for members: 2 of the 6 that decide"))
        bed.heal_ways(ways)
        (tmp_path / "whole").touch()
        found = [*endings(ranks, 6).values()]
    are_as_undisturbed(found)
    assert len({one.epochs[-1] for one in found}) == 1


@pytest.mark.parametrize("victim", [1, 3], ids=["a donor", "the joiner"])
def test_who_is_killed_while_the_state_is_copied_leaves_it_whole(victim: int) -> None:
    place = store()
    with Ranks(copies, 4, place.port) as ranks:
        hear(ranks, {1: "gives"})
        ranks.kill(victim)
        if victim == 3:
            ranks.restart(victim)
        found = endings(ranks, 3 if victim == 1 else 4)
    are_as_undisturbed([*found.values()])
    # The death of a donor is one of a member; that of a joiner costs nobody anything.
    epochs = [1, 2, 3] if victim == 1 else [1, 2]
    assert {rank: one.epochs for rank, one in found.items()} == {
        rank: epochs[-1:] if rank == 3 else epochs for rank in {0, 1, 2, 3} - ({1} if victim == 1 else set())
    }


def test_a_joiner_that_is_too_slow_is_told_its_rates_and_the_others_go_on() -> None:
    place = store()
    with Ranks(too_slow, 3, place.port) as ranks:
        *stayed, refused = ranks.join(60)
    assert "cannot join: it takes 0" in refused and "Mbit/s: it would never be done" in refused
    are_as_undisturbed(stayed)
    assert all(one.epochs == [1] for one in stayed)


@pytest.mark.parametrize(
    ("copied", "words"),
    [
        (False, "UsageError: the key file .* is in use"),
        (True, "Evicted: the others have gone on without|PeerLost: .* give each its own key file"),
    ],
    ids=["on one machine", "on two that have the same key"],
)
def test_of_a_process_that_is_started_twice_one_is_in_and_the_other_is_told(
    copied: bool, words: str, tmp_path: Path
) -> None:
    place, keys = store(), [tmp_path / "key", tmp_path / "copy"]
    start(dist.HashStore(), 0, 1, Elastic(1, 1, key_file=str(keys[0]))).close()
    shutil.copy(*keys)
    with Ranks(twins, 4, place.port, [str(keys[0]), str(keys[copied])]) as ranks:
        found = ranks.join(60)
    told = [one for one in found if isinstance(one, str)]
    assert len(told) == 1 and re.match(words, told[0]), told
    are_as_undisturbed([one for one in found if isinstance(one, Outcome)])


def test_who_has_another_secret_is_told_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEED_SECRET", "the secret of all members")
    member = start(dist.HashStore(), 0, 1, Elastic(1, 2))
    try:
        monkeypatch.setenv("TWEED_SECRET", "the secret of somebody else")
        with pytest.raises(UsageError, match="its secret is not that of this process"):
            join(member.address)
        member.wait_for(lambda epoch, _: epoch.number == 1, 0.0)
        monkeypatch.setenv("TWEED_SECRET", "the secret of all members")
        join(member.address).close()
    finally:
        member.close()


def test_a_founder_with_another_secret_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEED_SECRET", "the secret of all members")
    place, told = dist.HashStore(), list[str]()

    def first() -> None:
        try:
            start(place, 0, 2, Elastic(1, 2), timeout_s=1.0)
        except DeadlineExceeded as error:
            told.append(str(error))

    thread = Thread(target=first)
    thread.start()
    place.get("tweed member 0")  # it has read its secret
    monkeypatch.setenv("TWEED_SECRET", "the secret of somebody else")
    with pytest.raises(UsageError, match="its secret is not that of this process"):
        start(place, 1, 2, Elastic(1, 2))
    thread.join()
    assert told == ["no link to the members of ranks [1] within 1 s"]


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes compute without end."""
    with ExitStack() as stack:
        for _ in range(processes):
            spins = stack.enter_context(subprocess.Popen(["sh", "-c", "while :; do :; done"]))
            stack.callback(spins.kill)
        yield


def test_stops_of_a_moment_and_busy_cores_evict_nobody() -> None:
    place = store()
    plan = Plan.parse("after 0s stop 1 for 0.3s; after 0.5s stop 0 for 0.3s")
    with busy(2 * (os.cpu_count() or 1)), Ranks(stops_and_busy, 4, place.port) as ranks:
        hear(ranks, dict.fromkeys(range(4), "trains"))
        with FaultInjector(plan, 4, ranks.pid) as injector:
            while not injector.done:
                injector.turn(0)
                ranks.poll(0.01)
        ended = ranks.join(60)
    are_as_undisturbed(ended)
    assert all(one.epochs == [1] for one in ended)


def test_on_a_full_disk_the_old_checkpoint_stays_and_training_goes_on(tmp_path: Path) -> None:
    place = store()
    with Ranks(on_a_full_disk, 2, place.port, tmp_path) as ranks:
        hear(ranks, {1: "the checkpoint of step 15 is not written"})
        found = ranks.join(60)
    are_as_undisturbed([one for one, _ in found])
    assert [steps for _, steps in found] == [[10, 10, 40]] * 2
