"""The exchange of peer descriptors for terms, with threads as ranks and a store in memory."""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, _DistributedBackendOptions
from torch.distributed.distributed_c10d import GroupName

from tweed.errors import DeadlineExceeded, PeerLost, UsageError
from tweed.testbed import run_ranks
from tweed.torch import Options
from tweed.torch.agreement import RankTerms, ahead, conflict
from tweed.torch.meeting import Meeting, Place, Process, Renewed, prefix
from tweed.torch.rendezvous import Terms, enter, group_hash, leave_together, one_host, settle
from tweed.transport import Ltp


def card(rank: int, *, boot: str = "b", network: str = "n", wire_only: bool = False) -> bytes:
    process = {"pid": rank + 1, "started": 1, "pids": "p", "host": "h"}
    known = process | {
        "uid": rank,
        "boot": boot,
        "network": network,
        "wire_only": wire_only,
        "tcp": "192.0.2.1:7",
    }
    return json.dumps(known).encode()


def place(rank: int, store: dist.Store, size: int = 3, seconds: float = 0.3) -> Place:
    return Place(store, "0", rank, size, timedelta(seconds=seconds))


def settle_all(size: int, store: dist.Store, *options: Options) -> list[Terms]:
    """What each rank learns. Of `options` the last is for all that are left."""
    given = [*options, *[options[-1] if options else Options()] * size]

    def rank(number: int) -> Terms:
        return settle(card(number), enter(place(number, store, size, seconds=10)), given[number])

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(rank, range(size)))


def test_all_ranks_get_the_same_terms() -> None:
    first, *others = settle_all(4, dist.HashStore())
    assert first.descriptors == [card(rank) for rank in range(4)]
    assert first.plan.ranks == 4
    assert all(terms == first for terms in others)


def test_a_store_can_be_used_again() -> None:
    """torch gives the next default group the same name in the same store."""
    store = dist.HashStore()
    first, second = settle_all(3, store), settle_all(3, store)
    assert first[0].hash != second[0].hash
    assert all(terms == second[0] for terms in second)


def test_rank_0_waits_for_those_who_need_its_store() -> None:
    store, here = dist.HashStore(), Process.here()
    ended = replace(here, started=here.started + 1)

    def leave(rank: int, *processes: Process, seconds: float = 10) -> None:
        leave_together(Meeting(place(rank, store, seconds=seconds), "key"), processes)

    with pytest.raises(DeadlineExceeded, match="ranks 1, 2 have not come to rank 0"):
        leave(0, here, here, here, seconds=0.1)
    leave(1)
    with pytest.raises(PeerLost, match=r"rank 2 is gone: process \d+ on .* ended before"):
        leave(0, here, ended, ended)
    leave(2)
    leave(0, here, ended, ended)  # they have joined before they ended


def test_a_plan_can_be_overruled() -> None:
    for terms in settle_all(2, dist.HashStore(), Options(schedule={"all_reduce": "ring"})):
        assert {pick.builder for pick in terms.plan.picks if pick.collective == "all_reduce"} == {"ring"}


def test_an_unknown_builder_is_refused() -> None:
    with pytest.raises(UsageError, match="no such builder"):
        settle_all(1, dist.HashStore(), Options(schedule={"all_reduce": "no such builder"}))


def test_ranks_that_were_told_otherwise_are_named() -> None:
    for terms in settle_all(3, dist.HashStore(), Options(), Options(), Options(server=1)):
        assert terms.conflict.startswith("rank 0 was given server none, rank 2 rank 1")


_PLAIN = Options()


def said(options: Options = _PLAIN, **others: Any) -> RankTerms:
    values = {"tweed": "1.0", "size": 2, "host": "a", "clock_s": 1e9, "options": options.terms()}
    return RankTerms(**(values | others))


@pytest.mark.parametrize(
    ("mine", "theirs", "words"),
    [
        (said(Options(transport=Ltp())), said(), "transport 'ltp' with .*, rank 1 no 'ltp'"),
        (said(Options(transport=Ltp(fraction=0.5))), said(Options(transport=Ltp())), "n': 0.5, .*n': 0.98"),
        (said(), said(tweed="0.9", host="b"), "rank 0 on a has tweed 1.0, rank 1 on b 0.9; .*-1.0-"),
        (said(), said(size=3, host="b"), "rank 0 on a was told of 2 ranks, rank 1 on b of 3; .* WORLD_SIZE"),
        (
            said(epoch=6),
            said(epoch=7, host="b"),
            "makes the group of epoch 6, rank 1 on b that of",
        ),
        (said(epoch=6), said(), "group of epoch 6, rank 1 on a that of epoch None"),
        (
            said(),
            said(clock_s=1e9 + 300),
            "rank 1 on a is 300 s ahead of that of rank 0 .*timedatectl",
        ),
    ],
)
def test_ranks_must_agree(mine: RankTerms, theirs: RankTerms, words: str) -> None:
    assert re.search(words, conflict(mine, 1, theirs, 1e9))
    assert conflict(mine, 1, mine, 1e9) == ""


def test_a_rank_that_came_early_is_no_clock_that_is_behind() -> None:
    assert conflict(said(), 1, said(clock_s=1e9 - 1000), 1e9) == ""
    assert ahead(0, said(clock_s=1e9 + 90), 1, "b", 1e9).startswith("the clock of rank 0 on a is 90 s ahead")


def test_what_a_rank_says_survives_the_store_and_that_of_other_versions_is_read() -> None:
    assert RankTerms.decode(said().encode()) == said()
    older = RankTerms.decode(json.dumps(Options().terms()))
    assert "rank 1 on another host another version" in conflict(said(), 1, older, 1e9)


def test_sizes_that_differ_are_told_to_those_who_came_whoever_is_missing() -> None:
    store = dist.HashStore()
    meetings = [enter(place(rank, store, size, seconds=10)) for rank, size in ((0, 3), (1, 2), (2, 4))]
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda one: settle(card(one.place.rank), one, Options()), meetings[:2]))
    for terms in (*found, settle(card(2), meetings[2], Options())):
        assert "was told of 3 ranks, rank 1 on" in terms.conflict


def test_a_rank_of_a_larger_group_finds_that_out_by_itself() -> None:
    store = dist.HashStore()
    meetings = [enter(place(rank, store, size, seconds=10)) for rank, size in ((0, 1), (1, 2))]
    assert settle(card(0), meetings[0], Options()).conflict == ""
    assert "of 1 ranks, rank 1 on" in settle(card(1), meetings[1], Options()).conflict


def test_ranks_of_two_epochs_make_no_group() -> None:
    store = dist.HashStore()

    def rank(number: int) -> Terms:
        here = replace(place(number, store, 2, seconds=10), epoch=6 + number)
        return settle(card(number), enter(here), Options())

    with ThreadPoolExecutor(2) as pool:
        for terms in pool.map(rank, range(2)):
            assert "makes the group of epoch 6, rank 1 on" in terms.conflict


def test_terms_survive_the_store() -> None:
    (terms,) = settle_all(1, dist.HashStore())
    assert Terms.decode(terms.encode()) == terms


def test_hashes_of_groups_differ() -> None:
    ids = {group_hash(name, nonce) for name in ("0", "1") for nonce in (b"a", b"b")}
    assert len(ids) == 4
    assert all(0 <= number < 2**64 for number in ids)


def test_one_host_means_shared_memory_for_all() -> None:
    others = card(1), card(1, boot="another machine"), card(1, network="another"), card(1, wire_only=True)
    assert [one_host([card(0), other]) for other in others] == [True, False, False, False]


def test_who_has_not_come_is_named() -> None:
    store = dist.HashStore()
    meeting = enter(place(0, store))
    enter(place(2, store)).leave("descriptor/2", json.dumps(["", ""]))
    with pytest.raises(DeadlineExceeded, match="rank 1 has not come to rank 0, of 3"):
        settle(card(0), meeting, Options())
    with pytest.raises(DeadlineExceeded, match="rank 0 has not come to rank 1, of 2"):
        settle(card(1), enter(place(1, dist.HashStore(), size=2)), Options())


def test_a_long_wait_says_once_whom_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tweed.torch.meeting._LONG_S", 0.1)
    with pytest.raises(DeadlineExceeded):
        settle(card(0), enter(place(0, dist.HashStore(), seconds=0.5)), Options())
    (line,) = capfd.readouterr().err.splitlines()
    assert "ranks 1, 2 have not come" in line
    assert "it gives up in 0 s" in line


def test_who_fails_tells_all_others_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tweed.torch.meeting._LOOK_S", 0.0)
    store = dist.HashStore()
    for rank, error, raised in ((0, UsageError("no good"), UsageError), (1, KeyboardInterrupt(), PeerLost)):
        failing, waiting = (Meeting(place(r, store, seconds=60), f"try {rank}") for r in (rank, 2))
        with pytest.raises(type(error)), failing.reported():
            raise error
        with pytest.raises(raised, match=f"rank {rank} has failed: process {os.getpid()} on .*"):
            settle(card(2), waiting, Options())
        with pytest.raises(raised, match="no good" if rank == 0 else "KeyboardInterrupt"):
            waiting.look()


def test_a_rank_is_taken_by_a_process_that_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    here = Process.here()
    another = replace(here, pid=1, started=0)
    cases = {
        "this one, for a later group": (here, True),
        "one whose number was given anew": (another, True),
        "one of another machine": (replace(another, boot="elsewhere"), False),
        "init": (replace(here, pid=os.getppid(), started=_start_of(os.getppid())), False),
    }
    for case, (holder, free) in cases.items():
        store = dist.HashStore()
        store.set(f"{prefix()}/holder/0", holder.encode())
        if free:
            assert enter(place(0, store)).key.endswith("/1"), case
        else:
            with pytest.raises(UsageError, match=f"rank 0 is taken: process {holder.pid} on"):
                enter(place(0, store))


def _start_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(") ")[2].split()[19])


ELSEWHERE = replace(Process.here(), boot="elsewhere")


def test_workers_that_are_restarted_begin_anew() -> None:
    """In the same store, whatever the workers before them have left there."""
    store = dist.HashStore()
    gone = replace(Process.here(), started=0)
    store.set(f"{prefix()}/holder/0", gone.encode())
    with pytest.raises(DeadlineExceeded, match="rank 0 has not come to rank 1"):
        enter(place(1, store, 2))
    first, second = settle_all(2, store)
    assert first == second


@pytest.mark.parametrize("terms", [False, True], ids=["nothing", "terms"])
def test_a_rank_0_of_the_life_before_is_given_up_for_the_new_one(
    terms: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ran on another machine, so only its successor shows that it has ended."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "run")
    monkeypatch.setattr("tweed.torch.meeting._LOOK_S", 0.0)
    store = dist.HashStore()
    store.set("tweed/run/holder/0", ELSEWHERE.encode())
    left = enter(place(1, store, 2, seconds=20))
    if terms:
        stale = settle(card(0), Meeting(place(0, store, 1), "stale"), Options())
        left.leave("terms", replace(stale, descriptors=[card(0), card(7)]).encode())
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(settle, card(1), left, Options())
        new = enter(place(0, store, 2))
        assert isinstance(waiting.exception(20), Renewed)
    assert enter(place(1, store, 2)).key == new.key.rpartition("/")[0] + "/1"
    assert new.key != left.key


def beside(rank: int, size: int, folder: str) -> list[float] | None:
    """Ranks 2 and 1 as 0 and 1 of a group that is no part of the default one, as those of Ray are."""
    if rank == 0:  # the store of the default group ends with it
        dist.barrier()
        return None
    options = _DistributedBackendOptions()
    options.store = PrefixStore("beside", dist.FileStore(f"{folder}/store", size - 1))
    options.group_rank, options.group_size = size - 1 - rank, size - 1
    options.group_id, options.timeout = GroupName("beside"), timedelta(seconds=30)
    options.global_ranks_in_group = []
    engine = dist.Backend._plugins["TWEED"].creator_fn(options, None)
    tensor = torch.full((2,), float(rank))
    engine.allreduce([tensor], dist.AllreduceOptions()).wait()
    dist.barrier(dist.new_group([1, 2], use_local_synchronization=True))  # which knows its members as before
    dist.barrier()
    return tensor.tolist()


def test_a_group_may_stand_beside_the_default_one(tmp_path: Path) -> None:
    assert run_ranks(beside, 3, str(tmp_path), backend="tweed") == [None, [3.0] * 2, [3.0] * 2]
