"""Process groups that are made anew of other members: torch's cases for `_reconfigure`, with Gloo beside."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.faults.ring import endings
from tests.torch.test_errors import caught
from tweed.errors import UsageError
from tweed.testbed import Network, Ranks, run_ranks
from tweed.torch import reconfigure
from tweed.torch.agreement import RankTerms

pytestmark = pytest.mark.skipif(
    not hasattr(dist, "_reconfigure"), reason="this torch has no reconfigure: it came with 2.14"
)


class Meet:
    """What a program has beside its process groups: a folder, by which handles are exchanged."""

    def __init__(self, folder: str, rank: int, size: int, backend: str, *, bare: bool) -> None:
        self.rank, self.size = rank, size
        self.store = dist.FileStore(f"{folder}/handles", -1)
        # Gloo's members meet in torch's store, also later.
        place = dist.FileStore(f"{folder}/{'all' if bare else 'first'}", -1 if bare else size)
        limit = timedelta(seconds=20)
        later = {"enable_reconfigure": True} if bare else {}
        dist.init_process_group(backend, store=place, rank=rank, world_size=size, timeout=limit, **later)

    def handles(self, key: str, ranks: list[int]) -> list[str]:
        """Of these processes, which all call this."""
        self.store.set(f"{key}/{self.rank}", dist._get_reconfigure_handle())
        return [self.store.get(f"{key}/{rank}").decode() for rank in ranks]


def total() -> float:
    """The sum of ranks and ones over the group: of n members n (n + 1) / 2."""
    tensor = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(tensor)
    return tensor.item()


def again(meet: Meet, uuid: int, ranks: list[int], *, kind: type = list) -> tuple[int, int, float]:
    handles = meet.handles(str(uuid), ranks)
    dist._reconfigure(uuid, kind(handles), timeout=timedelta(seconds=20)).wait()
    return dist.get_rank(), dist.get_world_size(), total()


def shrink(meet: Meet) -> Any:
    return again(meet, 1, [0, 1]) if meet.rank < 2 else None


def grow(meet: Meet) -> Any:
    if meet.rank < 2:
        again(meet, 1, [0, 1])
    return again(meet, 2, [0, 1, 2, 3])


def split(meet: Meet) -> Any:
    return again(meet, 1 + meet.rank // 2, [0, 1] if meet.rank < 2 else [2, 3])


def merge(meet: Meet) -> Any:
    split(meet)
    return again(meet, 3, [3, 2, 1, 0])


def alone(meet: Meet) -> Any:
    return again(meet, 10 + meet.rank, [meet.rank])


def after_abort(meet: Meet) -> Any:
    dist.distributed_c10d._get_default_group().abort()
    return again(meet, 1, [0, 1, 2, 3])


#: What each process is afterwards: rank, size, sum of ranks and ones.
CASES: dict[str, tuple[Callable[[Meet], Any], list[Any]]] = {
    "shrink": (shrink, [(0, 2, 3.0), (1, 2, 3.0), None, None]),
    "grow": (grow, [(rank, 4, 10.0) for rank in range(4)]),
    "split": (split, [(0, 2, 3.0), (1, 2, 3.0), (0, 2, 3.0), (1, 2, 3.0)]),
    "merge": (merge, [(3 - rank, 4, 10.0) for rank in range(4)]),
    "alone": (alone, [(0, 1, 1.0)] * 4),
    "after abort": (after_abort, [(rank, 4, 10.0) for rank in range(4)]),
}


def run_case(rank: int, size: int, folder: str, backend: str, bare: bool, name: str) -> Any:
    meet = Meet(folder, rank, size, backend, bare=bare)
    if not bare:
        total()
    return CASES[name][0](meet)


@pytest.fixture(params=["native", "python", "gloo"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "gloo":
        return "gloo"
    monkeypatch.setenv("TWEED_BINDING", request.param)
    return "tweed"


@pytest.mark.parametrize("name", CASES)
def test_members_change(tmp_path: Path, backend: str, name: str) -> None:
    assert run_ranks(run_case, 4, str(tmp_path), backend, True, name) == CASES[name][1]


def test_a_group_of_old_is_made_anew_too(tmp_path: Path, backend: str) -> None:
    assert run_ranks(run_case, 4, str(tmp_path), backend, False, "shrink") == CASES["shrink"][1]


def test_members_on_several_hosts_measure_their_links(tmp_path: Path) -> None:
    network = Network.parse("rate=100mbit")
    found = run_ranks(run_case, 4, str(tmp_path), "tweed", True, "merge", network=network)
    assert found == CASES["merge"][1]


def in_a_set(rank: int, size: int, folder: str, backend: str) -> tuple[int, int, float]:
    return again(Meet(folder, rank, size, backend, bare=True), 1, list(range(size)), kind=set)


def test_a_set_has_no_order(tmp_path: Path, backend: str) -> None:
    ranks, sizes, sums = zip(*run_ranks(in_a_set, 4, str(tmp_path), backend), strict=True)
    assert (sorted(ranks), sizes, sums) == ([0, 1, 2, 3], (4,) * 4, (10.0,) * 4)


def is_killed(rank: int, size: int, folder: str, backend: str) -> Any:
    meet = Meet(folder, rank, size, backend, bare=True)
    first = again(meet, 1, [0, 1, 2])
    if rank == 0:  # which would keep the store, had the members met there
        os.kill(os.getpid(), signal.SIGKILL)
    return first, caught(total)[0], again(meet, 2, [1, 2])


def test_survivors_of_a_kill_go_on(tmp_path: Path, backend: str) -> None:
    # Gloo's are told by the kernel too, where the one that died is a neighbour of both.
    told = "RuntimeError" if backend == "gloo" else "PeerLost"
    with Ranks(is_killed, 3, str(tmp_path), backend) as ranks:
        survivors = endings(ranks, 2)
    assert survivors == {1: ((1, 3, 6.0), told, (0, 2, 3.0)), 2: ((2, 3, 6.0), told, (1, 2, 3.0))}


def uses_a_uuid_twice(rank: int, size: int, folder: str, backend: str) -> tuple[str, str]:
    # Alone: of Gloo's members the first alone refuses it, and the others wait for that one until their limit.
    meet = Meet(folder, rank, size, backend, bare=True)
    again(meet, 1, [rank])
    kind, text = caught(lambda: again(meet, 1, [rank]))
    assert total() == 1.0  # the group before is as it was
    return kind, text


def test_a_uuid_is_used_once(tmp_path: Path, backend: str) -> None:
    ((kind, text),) = run_ranks(uses_a_uuid_twice, 1, str(tmp_path), backend)
    assert kind == ("RuntimeError" if backend == "gloo" else "UsageError")
    assert "uuid 1 was" in text and "used" in text


def is_used_wrongly(rank: int, size: int, folder: str) -> list[tuple[str, str]]:
    meet = Meet(folder, rank, size, "tweed", bare=True)
    before = caught(total)
    both = meet.handles("both", [0, 1])
    again(meet, 1, [0, 1])
    short = timedelta(seconds=0.3)
    wrong: list[tuple[int, list[str]]] = [
        (1, both),
        (2, both[1 - rank :][:1]),
        (3, [*both, both[0]]),
        (4, [both[rank], "gloo:0:-1:0:"]),
        (5, both[: 2 - rank]),  # rank 1's is not among them; rank 0 waits for it in vain
    ]
    found = [
        caught(lambda uuid=uuid, them=them: dist._reconfigure(uuid, them, timeout=short))
        for uuid, them in wrong
    ]
    assert total() == 3.0  # the group before is as it was
    return [before, *found]


@pytest.mark.parametrize("binding", ["native", "python"])
def test_wrong_uses_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, binding: str) -> None:
    monkeypatch.setenv("TWEED_BINDING", binding)
    for rank, said in enumerate(run_ranks(is_used_wrongly, 2, str(tmp_path))):
        kinds = ["UsageError"] * 5 + ["DeadlineExceeded" if rank == 0 else "UsageError"]
        words = [
            "no members yet",
            "uuid 1 was used before",
            "not among the 1 given",
            "given twice",
            "no handle of a group",
        ]
        assert [kind for kind, _ in said] == kinds
        for (_, text), word in zip(said, words, strict=False):
            assert word in text


def test_a_handle_is_read_back_and_other_settings_are_found() -> None:
    terms = RankTerms("1.0", 0, "host", 5.0, {"schedule": {}})
    ours = reconfigure.encode(b"card 0", terms)
    assert reconfigure.decode(ours) == (b"card 0", terms)
    later = reconfigure.encode(b"card 1", replace(terms, clock_s=1e9))
    members = reconfigure.Members.of(1, [later, ours], ours)
    assert (members.rank, members.descriptors) == (1, [b"card 1", b"card 0"])
    assert members.hash != reconfigure.Members.of(2, [later, ours], ours).hash
    assert members.hash == reconfigure.Members.of(1, [later, ours], later).hash
    for other, words in (
        (replace(terms, tweed="2.0"), "rank 0 on host has tweed 1.0, rank 1 on host 2.0"),
        (replace(terms, options={"schedule": {"all_reduce": "ring"}}), "rank 0 was given schedule {}"),
    ):
        with pytest.raises(UsageError, match=words):
            reconfigure.Members.of(1, [ours, reconfigure.encode(b"card 1", other)], ours)
