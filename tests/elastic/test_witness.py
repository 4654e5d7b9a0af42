"""A witness decides who is a member: members may be lost all but one at once, and it may be killed itself."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import typer

from tests.elastic.fault_trains import outlives
from tests.elastic.trains import STEPS, witnessed, witnessing
from tests.faults.ring import endings
from tests.simulate.test_elastic import trained
from tweed.cli.witness import witness as command
from tweed.elastic import Control, Elastic, rendezvous, start, witness
from tweed.elastic import witness_search as witness_election
from tweed.elastic.messages import Life, packed
from tweed.elastic.witness import Replaces, Witness
from tweed.errors import DataError, PeerLost, UsageError
from tweed.links.address import HubAddress
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
        with pytest.raises(UsageError, match="is not a witness of this run, whose epoch 1 has"):
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
    assert torch.allclose(found.params, trained(Plan(), steps=found.steps_done).params, rtol=0, atol=1e-12)


def founded(store: dist.Store, size: int, witness: str) -> list[Control]:
    """Members in this process, of a run with this witness."""
    elastic = Elastic(1, size, witnesses=(witness,))
    with ThreadPoolExecutor(size) as each:
        return list(each.map(lambda rank: start(store, rank, size, elastic), range(size)))


def test_a_new_witness_gets_its_place_though_the_member_that_it_called_is_lost(tmp_path: Path) -> None:
    with ExitStack() as ends:
        with witnessing(tmp_path / "old") as old:
            members = founded(dist.HashStore(), 3, old.address)
            for member in members:
                ends.callback(member.close)
            wait(lambda: old.epoch == 1)
        # While the only witness is away nothing is agreed, and the new one learns who else is of the run.
        replaces = Replaces(old.address, members[0].address)
        new = ends.enter_context(witnessing(tmp_path / "new", replaces))
        wait(lambda: len(new._member_links) == 3)
        members[0].close()
        _, _, at = old.address.partition("@")
        again = ends.enter_context(witnessing(tmp_path / "old", listen=at))
        assert (again.resumed, again.called_at) == (1, at)
        wait(lambda: new.standing == "settled" and again.standing == "evicted")
    with pytest.raises(
        UsageError, match=r"old belongs to a witness whose place another witness has in epoch \d"
    ):
        Witness("127.0.0.1:0", tmp_path / "old", replaces=replaces)
    with closing(Witness("127.0.0.1:0", tmp_path / "new", replaces=replaces)) as one:
        assert one.resumed == new.epoch and one.called_at == new.address.partition("@")[2]


def test_a_new_witness_says_what_keeps_it_from_its_place_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(witness_election, "_PATIENCE_S", 0.05)
    with ExitStack() as ends:
        old = ends.enter_context(witnessing(tmp_path / "old"))
        at = old.address.partition("@")[2]
        replaces = Replaces(old.address, f"{at}, 127.0.0.1:1")
        new = ends.enter_context(witnessing(tmp_path / "new", replaces))
        why = f"no member calls this witness at {new.address.partition('@')[2]}: it must listen"
        wait(lambda: why in caplog.text)
        members = founded(dist.HashStore(), 1, old.address)
        ends.callback(members[0].close)
        wait(lambda: new.standing == "settled")
    with witnessing(tmp_path / "third", Replaces(old.address, "127.0.0.1:1")):
        wait(lambda: "Give more addresses of its members or witnesses with --of" in caplog.text)


def test_an_address_where_another_process_is_by_now_ends_a_new_witness_only_if_it_was_told_of_it(
    tmp_path: Path,
) -> None:
    with witnessing(tmp_path / "old") as old, witnessing(tmp_path / "other") as other:
        place = other.address.partition("@")[2]
        stale = f"{'ab' * 32}@{place}"
        election = witness_election.WitnessElection
        with closing(election("cd" * 32, "127.0.0.1:1", old.address)) as one:
            one.learn(stale)
            wait(lambda: one.turn(calls=False) or bool(one._links and one._dialers[place].failed))
        with pytest.raises(UsageError), closing(election("cd" * 32, "127.0.0.1:1", stale)) as one:
            wait(lambda: bool(one.turn(calls=False)))


def test_each_obstacle_of_a_new_witness_has_its_own_words() -> None:
    of = partial(witness_election.obstacle, "a:1")
    assert "Give more addresses" in of(answers=False, calls=False)
    assert "at a:1: it must listen" in of(answers=True, calls=False)
    assert of(answers=True, calls=True) == of(answers=False, calls=True)
    seen = witness_election.Obstacle(since=0.0)
    each = [("a", 1.0), ("a", 11.0), ("a", 99.0), ("b", 99.5), ("b", 109.5)]
    assert [seen.lasts(*one) for one in each] == [False, True, False, False, True]


def test_all_that_begin_are_given_the_same_witnesses() -> None:
    store, given = dist.HashStore(), f"{1:064x}@127.0.0.1:70"
    store.set(rendezvous._VOTERS, json.dumps([[f"{1:064x}", 3, "127.0.0.1:70"]]))
    assert rendezvous._voters(store, 1, Elastic(1, 2, witnesses=(given,))) == [
        (f"{1:064x}", 3, "127.0.0.1:70")
    ]
    with pytest.raises(UsageError, match=r"give all processes the same Elastic\(witnesses=...\)"):
        rendezvous._voters(store, 1, Elastic(1, 2))


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
        lives.append((witness.address.partition("@")[0], witness._member_links.node.incarnation()))
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


def test_a_witness_without_its_file_on_a_host_whose_clock_went_back_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    with witnessing(state) as one:
        (member,) = founded(dist.HashStore(), 1, one.address)
        wait(lambda: one.epoch == 1)
    state.unlink()
    monkeypatch.setattr(witness, "later_life", lambda: 1)
    at = one.address.partition("@")[2]
    words = r"never let it in: .*state was lost, and the clock .* has gone"
    with closing(member), closing(Witness(at, state)) as again, pytest.raises(UsageError, match=words):
        wait(lambda: bool(again.turn()))


def test_a_founder_with_a_key_file_may_have_a_witness(tmp_path: Path) -> None:
    with witnessing(tmp_path / "state") as one:
        elastic = Elastic(1, 1, key_file=str(tmp_path / "key"), witnesses=(one.address,))
        control = start(dist.HashStore(), 0, 1, elastic)
        wait(lambda: one.epoch == 1)
        assert control.epoch.witness_addresses == (one.address.partition("@")[2],)
        control.close()


def interrupted(one: Witness) -> None:
    raise KeyboardInterrupt


def test_a_file_that_is_of_a_run_is_named_with_its_epoch_and_where_members_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    with witnessing(state) as one:
        (member,) = founded(dist.HashStore(), 1, one.address)
        wait(lambda: one.epoch == 1)
        member.close()
    monkeypatch.setattr(Witness, "turn", interrupted)
    at = one.address.partition("@")[2]
    for of, more in (("", ""), ("127.0.0.1:1", ". To take another one's place, give a new file by --state")):
        with pytest.raises(typer.Exit):
            command("127.0.0.1:0", state, "0" * 64 if of else "", of)
        said = capsys.readouterr().out
        assert said == f"{state} is of a run: goes on as its witness in epoch 1, at {at}{more}\n"


def test_witnesses_that_cannot_be_are_errors() -> None:
    for witnesses in (("127.0.0.1:70",), ("ab@127.0.0.1:70",), (f"{'0' * 64}@127.0.0.1:70",) * 2):
        with pytest.raises(UsageError):
            Elastic(1, 2, witnesses=witnesses)
    for count in (2, 4):
        with pytest.raises(UsageError, match=rf"no more may be lost than of {count - 1}\. Give 1, 3 or 5"):
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
    monkeypatch.setattr(rendezvous, "opened", lambda *_: Answers(key))
    found = rendezvous._life(HubAddress.parse(f"{key.hex()}@127.0.0.1:1"))
    assert found[1] == 3
