"""A witness decides who is a member: members may be lost all but one at once, and it may be killed itself."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.elastic.fault_trains import outlives
from tests.elastic.trains import STEPS, witnessed, witnessing
from tests.faults.ring import endings
from tests.simulate.test_elastic import trained
from tweed.elastic import Elastic, meeting, start, witness
from tweed.elastic.messages import Life, packed
from tweed.elastic.witness import Replaces, Witness
from tweed.errors import DataError, DeadlineExceeded, PeerLost, UsageError
from tweed.exchange.hub.wire.address import HubAddress
from tweed.testbed import Ranks
from tweed.testbed.faults import Plan


def wait(until: Callable[[], bool]) -> None:
    while not until():
        time.sleep(0.01)


@pytest.mark.parametrize(
    "dies",
    [{1: 20, 2: 20, 3: 20}, {0: 20, 1: 20, 2: 20}, {4: 10, 2: 20}],
    ids=["three at once", "rank 0 and two others", "the witness, and then a member"],
)
def test_members_go_on_whoever_is_lost(dies: dict[int, int], tmp_path: Path) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    survivors = set(range(4)) - dies.keys()
    with Ranks(witnessed, 5, store.port, tmp_path, dies) as ranks:
        found = endings(ranks, len(survivors) + 1)  # and the witness
    assert found.keys() == survivors | {4}
    ended = [found[rank] for rank in survivors]
    assert len({digest for digest, _, _ in ended}) == 1
    assert all(epoch > 1 for _, _, epoch in ended)
    assert torch.allclose(ended[0][1], trained(Plan(), steps=STEPS).params, rtol=0, atol=1e-12)


def test_who_joins_finds_a_witness_in_the_place_of_one_that_is_lost_for_good(tmp_path: Path) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with ExitStack() as kept, ExitStack() as second, ExitStack() as first:
        voters = [
            stack.enter_context(witnessing(tmp_path / name))
            for stack, name in ((first, "first"), (second, "second"), (kept, "third"))
        ]
        addresses = tuple(voter.address for voter in voters)
        lost, of = addresses[0].partition("@")[0], addresses[1].partition("@")[2]
        ranks = kept.enter_context(Ranks(outlives, 3, store.port, addresses))
        wait(lambda: voters[1].epoch == 1)
        with pytest.raises(UsageError, match="is no witness of this run, whose epoch 1 has"):
            wrong = Witness("127.0.0.1:0", tmp_path / "wrong", replaces=Replaces("0" * 64, of))
            kept.enter_context(closing(wrong))
            while True:
                wrong.turn()
        first.close()
        for file in tmp_path.glob("first*"):
            file.unlink()
        new = kept.enter_context(witnessing(tmp_path / "new", Replaces(lost, f"127.0.0.1:1, {of}")))
        wait(lambda: new.standing == "settled")
        store.set("join", "")
        wait(lambda: store.add("in", 0) == 3)
        second.close()
        store.set("die", "")
        found = endings(ranks, 1)[2]
    assert found.epochs[-1] >= 4  # with the new witness, the joiner, and without the others
    assert torch.allclose(found.params, trained(Plan(), steps=found.counted).params, rtol=0, atol=1e-12)


def test_a_witness_that_nobody_calls_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(witness, "_CALLED_S", 0.2)
    with witnessing(tmp_path / "one") as one:
        of = one.address.partition("@")[2]
        with pytest.raises(DeadlineExceeded, match=r"it must listen where they reach it"):
            Witness("127.0.0.1:0", tmp_path / "other", replaces=Replaces(one.address, of))
    with pytest.raises(PeerLost, match=r"nobody of the run is reached"):
        Witness("127.0.0.1:0", tmp_path / "other", replaces=Replaces(one.address, of))


def test_all_that_begin_are_given_the_same_witnesses() -> None:
    store, given = dist.HashStore(), f"{1:064x}@127.0.0.1:70"
    store.set(meeting._VOTERS, json.dumps([[f"{1:064x}", 3, "127.0.0.1:70"]]))
    assert meeting._voters(store, 1, Elastic(1, 2, witnesses=(given,))) == [(f"{1:064x}", 3, "127.0.0.1:70")]
    with pytest.raises(UsageError, match=r"give Elastic\(witnesses=...\) the same at all"):
        meeting._voters(store, 1, Elastic(1, 2))


def test_ctrl_c_ends_a_witness_that_says_how_to_go_on(tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    command = [sys.executable, "-m", "tweed", "witness", "--listen", "127.0.0.1:0", "--state", state]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as witness:
        assert witness.stdout is not None and witness.stderr is not None  # pipes
        address = witness.stdout.readline().partition("@")[2].partition('"')[0]
        witness.send_signal(signal.SIGINT)
        said = witness.stderr.read()
    assert witness.returncode == 130
    assert f"tweed witness --listen {address} --state {state}" in " ".join(said.split())
    alone = subprocess.run([*command, "--replaces", "0" * 64], capture_output=True, text=True)
    assert alone.returncode == 2 and "go together" in alone.stderr


def test_a_witness_goes_on_from_its_file_and_from_no_other(tmp_path: Path) -> None:
    state = tmp_path / "state"
    lives = []
    for _ in range(2):
        witness = Witness("127.0.0.1:0", state)
        witness.turn()
        lives.append((witness.address.partition("@")[0], witness._linked.node.incarnation()))
        witness.close()
    assert lives[0] == lives[1]
    state.write_bytes(state.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"start another witness"):
        Witness("127.0.0.1:0", state)
    other = Witness("127.0.0.1:0", tmp_path / "other")
    other.turn()
    other.close()
    state.write_bytes((tmp_path / "other").read_bytes())
    with pytest.raises(DataError, match=r"has stored"):
        Witness("127.0.0.1:0", state)


def test_a_founder_with_a_key_file_may_have_a_witness(tmp_path: Path) -> None:
    with witnessing(tmp_path / "state") as one:
        elastic = Elastic(1, 1, key_file=str(tmp_path / "key"), witnesses=(one.address,))
        control = start(dist.HashStore(), 0, 1, elastic)
        wait(lambda: one.epoch == 1)
        assert control.epoch.witness_addresses == (one.address.partition("@")[2],)
        control.close()


def test_witnesses_that_cannot_be_are_errors() -> None:
    for witnesses in (("127.0.0.1:70",), ("ab@127.0.0.1:70",), (f"{'0' * 64}@127.0.0.1:70",) * 2):
        with pytest.raises(UsageError):
            Elastic(1, 2, witnesses=witnesses)
    for count in (2, 4):
        with pytest.raises(UsageError, match=rf"as many may be lost as of {count - 1}\. Give 1, 3 or 5"):
            Elastic(1, 2, witnesses=tuple(f"{number:064x}@127.0.0.1:{number + 1}" for number in range(count)))
    elastic = Elastic(1, 2, witnesses=(f"{'0' * 64}@127.0.0.1:1",))
    with pytest.raises(PeerLost, match=r"127.0.0.1:1"):
        start(dist.HashStore(), 0, 1, elastic)


class Answers:
    """Links to a witness of this key, which answers at once."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def call(self, place: str, key: str | None) -> int:
        return 1

    def send(self, link: int, data: bytes) -> None:
        return

    def next(self, seconds: float) -> list[tuple[int, bytes | bytearray]]:
        return [(1, self._key), (1, bytearray(packed(Life(3, 0))))]

    def close(self) -> None:
        return


@pytest.mark.parametrize("first", [0x00, 0xFE, 0xFF])
def test_a_witness_may_have_any_key(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    key = bytes([first]) + bytes([0xE9] * 31)
    monkeypatch.setattr(meeting, "opened", lambda *_: Answers(key))
    found = meeting._life(HubAddress.parse(f"{key.hex()}@127.0.0.1:1"))
    assert found[1] == 3
