"""What goes wrong before the first call, said in words."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
import torch.distributed as dist

from tests.faults.conftest import WAYS, take
from tests.faults.ring import Outcome, caught, endings, hear_all
from tweed import _core
from tweed.errors import PeerLost, UsageError
from tweed.testbed import Ended, Ranks, run_ranks, say
from tweed.torch import Options, rendezvous
from tweed.train.torchrun import take_part

NOT_OURS = "192.0.2.1"  # kept for documents: no machine has it


@pytest.fixture
def taken_port() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield listener.getsockname()[1]


def test_a_port_that_is_taken(taken_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(taken_port), "RANK": "0", "WORLD_SIZE": "2"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)

    def never() -> Any:
        raise AssertionError("there is no store to open a run in")

    with pytest.raises(UsageError, match=f"cannot meet at 127.0.0.1:{taken_port}") as raised:
        take_part(never, never)
    assert f"ss -ltnp 'sport = :{taken_port}'" in str(raised.value)
    assert "--master-port" in str(raised.value)


def test_an_address_that_this_machine_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEED_SECRET", "a secret of some length, as other addresses than loopback need one")
    with pytest.raises(UsageError, match=f"cannot listen on {NOT_OURS}") as raised:
        dist.init_process_group(
            "tweed", store=dist.HashStore(), rank=0, world_size=1, pg_options=Options(host=NOT_OURS)
        )
    assert "TWEED_HOST" in str(raised.value)
    assert "ip -brief address" in str(raised.value)


def card_of(node: _core.Node, **changes: object) -> bytes:
    return json.dumps(json.loads(node.card()) | changes).encode()


def test_an_address_that_cannot_be_reached() -> None:
    node = _core.Node(transport="tcp")
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    gone = card_of(node, uid="f" * 32, host="far-away", tcp=f"127.0.0.1:{port}")
    with pytest.raises(PeerLost, match="rank 1 on far-away") as raised:
        node.join("0", 1, 0, [node.card(), gone], [], 1.0)  # it may be about to listen
    assert f"(127.0.0.1:{port}) cannot be reached" in str(raised.value)
    assert "firewall" in str(raised.value)


def test_a_rank_that_does_not_call_back() -> None:
    node = _core.Node(transport="tcp", deadline_s=0.1)
    silent = card_of(node, uid="0" * 32, host="far-away")
    with pytest.raises(PeerLost, match=r"rank 1 on far-away.*did not call in time"):
        node.join("0", 1, 0, [node.card(), silent], [], 1800.0)


def has_the_same_rank(rank: int, size: int, port: int) -> Outcome:
    """Both are rank 0 of three, and whoever comes second is told."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    ranks = {0: 0, 1: 0, 2: 1}
    return caught(lambda: dist.init_process_group("tweed", store=store, rank=ranks[rank], world_size=3))


def test_two_processes_with_one_rank() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with Ranks(has_the_same_rank, 3, store.port) as ranks:
        (event,) = ranks.poll(30)
        pids = {ranks.pid(rank) for rank in (0, 1)}
    event.value.must_be("UsageError", "rank 0 is taken", *(f"process {pid} on " for pid in pids))


def test_a_rank_that_the_group_does_not_have() -> None:
    with pytest.raises(UsageError, match="there is no rank 2 in a group of 2"):
        dist.init_process_group("tweed", store=dist.HashStore(), rank=2, world_size=2)


def waits_for_another(rank: int, size: int, port: int) -> str:
    """It is alone: the other one never comes."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    try:
        say("ready")
        dist.init_process_group("tweed", store=store, rank=rank, world_size=2)
    except KeyboardInterrupt:
        return "interrupted"
    return "ended"


def test_ctrl_c_works_while_ranks_are_waited_for() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with Ranks(waits_for_another, 1, store.port) as ranks:
        hear_all(ranks)
        ranks.kill(0, signal.SIGINT)
        assert endings(ranks, 1) == {0: "interrupted"}


def die_with_its_card_left() -> None:
    """This process goes when the others expect it to meet them, in the next group that it comes to."""
    settle = rendezvous.settle

    def die(*args: Any) -> Any:
        settle(*args)
        os._exit(0)

    rendezvous.settle = die


STAGES: dict[str, dict[int, Callable[[], None]]] = {
    "with its card left": {0: die_with_its_card_left},
    "before its first call": {1: lambda: os._exit(0)},
    "before it comes to a second group": {2: lambda: os._exit(0)},
    "with its card left for a second group": {2: die_with_its_card_left},
    "before its first call in a second group": {3: lambda: os._exit(0)},
}


def dies_at(rank: int, size: int, port: int, stage: str) -> Outcome:
    """Rank 1 does. The others make both groups, as far as they can be made."""
    meeting = dist.PrefixStore(stage, dist.TCPStore("127.0.0.1", port, is_master=False))
    groups: list[Any] = []
    steps: list[Callable[[], object]] = [
        lambda: dist.init_process_group("tweed", store=meeting, rank=rank, world_size=size),
        lambda: dist.barrier() if "second" in stage else None,
        lambda: groups.append(dist.new_group()),
        lambda: dist.barrier(group=groups[0]),
    ]

    def run() -> None:
        for number, step in enumerate(steps):
            if rank == 1:
                STAGES[stage].get(number, lambda: None)()
            step()

    outcome = caught(run)
    meeting.set(f"{rank} knows", "")
    meeting.get(f"{2 - rank} knows")  # it would be told of this rank's end otherwise
    return outcome


@pytest.fixture(scope="module", params=WAYS)
def started(request: pytest.FixtureRequest) -> Iterator[dict[str, Ranks]]:
    """Ranks of which one dies, for each stage. They do little but wait: all start at once."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as ending:
        take(WAYS[request.param], patch)
        yield {stage: ending.enter_context(Ranks(dies_at, 3, store.port, stage)) for stage in STAGES}


@pytest.mark.parametrize("stage", STAGES)
def test_a_rank_that_dies_at_a_stage_of_the_start_is_named(stage: str, started: dict[str, Ranks]) -> None:
    ended: dict[int, Outcome] = {}
    while len(ended) < 2:
        events = started[stage].poll(10)
        assert events, "they wait"
        ended |= {event.rank: event.value for event in events if isinstance(event, Ended)}
    for outcome in ended.values():
        outcome.must_be("PeerLost", "rank 1")


def joins_twice(rank: int, size: int) -> None:
    store = dist.distributed_c10d._get_default_store()
    dist.destroy_process_group()
    dist.init_process_group("tweed", store=store, rank=rank, world_size=size)
    dist.barrier()  # the store goes with rank 0


def test_groups_can_be_made_again_in_one_process() -> None:
    run_ranks(joins_twice, 2, backend="tweed")
