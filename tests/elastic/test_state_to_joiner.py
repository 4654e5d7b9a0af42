"""A joiner gets the state from all members while they go on, without a network: messages go by turns."""

from __future__ import annotations

import contextlib
import re
from collections import deque
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tweed.elastic.join_transfers import JoinTransfers
from tweed.elastic.messages import (
    CHUNK,
    RESULT,
    TENSORS,
    Ask,
    Chunk,
    Give,
    Got,
    Meeting,
    Meetings,
    Refused,
    packed,
    read,
)
from tweed.elastic.state import State
from tweed.elastic.state_to_joiner import Copy, Donor, mark_of
from tweed.elastic.terms import difference, shortened
from tweed.errors import DataError, PeerLost

JOINER = "new"


def state(step: int, numel: int) -> State:
    """That of members when `step` steps count."""
    numbers = torch.arange(numel, dtype=torch.float32) + step
    return State({"model": {"w": numbers, "empty": torch.ones(0)}, "step": step, "lr": 0.1})


def result(step: int, numel: int) -> Tensor:
    return torch.full([numel], step + 0.5)


def where_behind(step: int) -> tuple[int, ...]:
    """Where the steps are in the samples when this one counts: some of its samples come again."""
    return (step + 1, 10 * step + 10, *range(10 * step, 10 * step + step % 3))


@dataclass
class Net:
    """Members, a joiner, and what is on the way between them."""

    donors: int
    numel: int
    counted: int = 0
    way: deque[tuple[str, str, bytes]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.members = [f"{number}" for number in range(self.donors)]
        self.all = {key: JoinTransfers(key) for key in (*self.members, JOINER)}

    def deliver(self, most: int) -> None:
        """At most so many messages arrive."""
        for _ in range(most):
            self.collect()
            if not self.way:
                return
            sender, to, data = self.way.popleft()
            said = Chunk.read(data) if data[0] == CHUNK else read(data)
            if to in self.all:
                self.all[to].handle(sender, said, self.members)

    def collect(self) -> None:
        """All that is said is on its way."""
        for key, one in self.all.items():
            while (said := one.poll(0.0)) is not None:
                self.way.append((key, *said))

    def step(self) -> None:
        """The members train by one."""
        for key in self.members:
            self.all[key].give_state(self.counted, lambda: state(self.counted, self.numel), 0.0)
        for key in self.members:
            self.all[key].step(self.counted + 1)
            found = result(self.counted, self.numel)
            where = where_behind(self.counted)
            mark = mark_of(found, where)
            self.all[key].give_result(self.counted, found, where, mark, float(self.counted))
        self.counted += 1


@given(st.integers(1, 5), st.integers(1, 200_000), st.integers(3, 300))
def test_the_state_and_all_results_since_come_whole(donors: int, numel: int, most: int) -> None:
    net, got = Net(donors, numel), None
    new = net.all[JOINER]
    new.ask(net.members, 4 * numel)
    while got is None:
        net.deliver(most)
        net.step()
        assert new.refused is None and net.counted < 10_000
        got = new.state()
    step = got.tree["step"]
    assert torch.equal(got.tree["model"]["w"], state(step, numel).tree["model"]["w"])
    assert got.digests() == state(step, numel).digests()
    new.step(step)
    while not new.asks_in:
        net.deliver(10 * most)
        found = new.result(step, result(0, numel))
        if found is None:
            net.step()
            continue
        assert torch.equal(found[0], result(step, numel)) and found[1] == where_behind(step)
        step += 1
        new.step(step)
    for key in net.members:
        net.all[key].entered([JOINER])
    net.deliver(100_000)
    while (found := new.result(step, result(0, numel))) is not None:
        step += 1
        new.step(step)
    assert step == net.counted
    net.deliver(1000)
    assert not any(net.all[key].gives for key in net.members)


@given(st.floats(1e5, 1e8), st.integers(1, 4))
def test_a_member_keeps_to_the_rate_that_it_gives_to_joiners(bytes_per_s: float, joiners: int) -> None:
    """Over any time, up to a burst and a chunk; and it uses it."""
    net, one, now, sent, given = Net(1, 1_000_000), JoinTransfers("0", bytes_per_s), 100.0, 0, 0
    for joiner in range(joiners):
        one.handle(f"new {joiner}", Ask(0, 2, ["0"], []), ["0"])
    one.step(2)
    one.give_state(2, lambda: state(2, net.numel), now)
    while now < 100.5 and one.gives:
        while (said := one.poll(now)) is not None:
            joiner, data = said
            if data[0] == CHUNK:
                body = Chunk.read(data).body
                sent, given = sent + len(data), given + len(body)
                one.handle(joiner, Got(0, len(body)), ["0"])
        spent = bytes_per_s * (now - 100.0 + 0.02)
        assert sent <= spent + 66_000
        assert sent >= spent - bytes_per_s * 0.03 - 66_000 or given >= joiners * 4 * net.numel
        now += 0.01


@pytest.mark.parametrize(
    ("donors", "words"), [(4, "member 2 gives a part .* Start that one again"), (2, "no part has most of 2")]
)
@pytest.mark.parametrize("where", ["kept", "way"])
def test_a_donor_whose_part_is_wrong_is_named(donors: int, words: str, where: str) -> None:
    """It keeps something else, or a byte of its part is damaged."""
    net, bad = Net(donors, 1000), f"{donors // 2}"
    new = net.all[JOINER]
    new.ask(net.members, 4000)
    net.deliver(100)
    if where == "kept":
        give, numel = net.all[bad].give_state, net.numel
        net.all[bad].give_state = lambda step, _, now: give(step, lambda: state(step + 1, numel), now)  # type: ignore[method-assign]
    for _ in range(4):
        net.step()
    net.collect()
    if where == "way":
        net.way = deque(
            (sender, to, _damaged(data) if sender == bad else data) for sender, to, data in net.way
        )
    net.deliver(1000)
    assert new.state() is None and new.refused is not None and new.refused.final
    if where == "kept" or donors > 2:
        assert re.search(words, new.refused.reason)
    else:
        assert "member 1 gives a part" in new.refused.reason


def test_a_state_whose_tensors_are_yet_to_come_is_not_whole() -> None:
    donor, copy = Donor(Give(JOINER, 0, 0, ["0"]), 0), Copy(0, 400, {"0"})
    copy.donors = ["0"]
    kept = state(0, 50_000)
    donor.state(kept, kept.structure(), 0.0)
    while copy.state() is None:
        data = donor.poll(0, 0.0)
        assert data is not None
        copy.take("0", Chunk.read(data))
    assert donor.poll(0, 0.0) is None  # it was whole with the last of them


def given_and_step() -> tuple[Net, JoinTransfers]:
    """The joiner has the state, and a step whose result is on its way."""
    net = Net(2, 1000)
    new = net.all[JOINER]
    new.ask(net.members, 4000)
    net.deliver(100)
    while new.state() is None:
        net.deliver(100)
        net.step()
    return net, new


def test_nothing_is_kept_for_who_got_the_whole_state_otherwise() -> None:
    """Results that it has not acknowledged, and those that come when it needs them no more."""
    net, new = given_and_step()
    new.step(net.counted)
    for _ in range(20):
        net.step()
    net.deliver(1000)
    assert any(net.all[key].gives for key in net.members)
    net.step()
    for key in net.members:
        net.all[key].entered([JOINER])
    new.is_in()
    net.deliver(1000)
    assert not any(net.all[key].gives for key in net.members)


def test_a_donor_that_is_lost_in_silence_cuts_off() -> None:
    _, new = given_and_step()
    new.handle_members(["0", "1", JOINER])
    assert new.refused is None
    new.handle_members(["0", JOINER])
    assert new.refused is not None and not new.refused.final


def test_where_a_donor_is_silent_while_the_state_is_copied_the_others_say_so() -> None:
    net = Net(3, 100_000)
    new = net.all[JOINER]
    new.ask(net.members, 400_000)
    net.deliver(4)
    while not net.all["0"].donors_at(net.counted):
        net.step()
    net.step()
    silent = net.all.pop("2")
    net.deliver(1000)
    assert new.state() is None and new.refused is None
    for key in ("0", "1"):
        net.all[key].handle_members(["0", "1"])
    net.deliver(1000)
    assert new.refused is not None and not new.refused.final and "a donor was lost" in new.refused.reason
    net.members.remove("2")
    new.ask(net.members, 400_000)
    for _ in range(8):
        net.deliver(1000)
        net.step()
    assert new.state() is not None and silent.gives


def test_who_the_joiner_does_not_reach_gives_nothing() -> None:
    net = Net(3, 1000)
    new = net.all[JOINER]
    new.ask(["0", "2"], 4000)
    for _ in range(6):
        net.deliver(1000)
        assert not net.all["1"].gives
        net.step()
    assert new.state() is not None


def test_who_asks_a_silent_member_asks_another_one() -> None:
    new = JoinTransfers(JOINER)
    new.ask(["0", "1"], 40)
    assert new.poll(100.0) is not None and new.poll(104.9) is None and new.refused is None
    assert new.poll(105.1) is None
    assert new.refused is not None and not new.refused.final and "silent" in new.refused.reason
    new.ask(["0", "1"], 40)
    asked = new.poll(105.2)
    assert asked is not None and asked[0] == "1" and new.refused is None


def test_a_result_that_was_summed_anew_is_not_mixed_with_that_of_one_that_was_lost() -> None:
    """Donor 1 counted the step, gave its part and was lost; the others sum it anew, to other bits."""
    net, new = given_and_step()
    net.deliver(1000)
    step = net.counted
    new.step(step)
    found = result(step, net.numel)
    where = where_behind(step)
    net.all["1"].give_result(step, found, where, mark_of(found, where), 0.0)
    net.deliver(1000)
    found = found * (1 + 1e-6)
    net.all["0"].give_result(step, found, where, mark_of(found, where), 0.0)
    net.deliver(1000)
    assert new.result(step, result(0, net.numel)) is None
    assert new.refused is not None and not new.refused.final and f"of step {step}" in new.refused.reason


def _damaged(data: bytes) -> bytes:
    if data[0] != CHUNK or Chunk.read(data).what != TENSORS:
        return data
    return data[:-1] + bytes([data[-1] ^ 1])


def test_a_joiner_that_is_killed_while_it_copies_is_given_no_more_and_the_next_gets_all() -> None:
    net = Net(3, 1_000_000)
    net.all[JOINER].ask(net.members, 4_000_000)
    while not any(donor.acknowledged for key in net.members for donor in net.all[key]._donors.values()):
        net.deliver(3)
        net.step()
    killed = net.all.pop(JOINER)
    assert killed.state() is None and all(net.all[key].gives for key in net.members)
    for key in net.members:
        net.all[key].handle_lost(JOINER)
    net.way.clear()  # a link goes with all that is on the way
    net.step()
    net.collect()
    assert not net.way and not any(net.all[key].gives for key in net.members)
    new = net.all[JOINER] = JoinTransfers(JOINER)
    new.ask(net.members, 4_000_000)
    for _ in range(8):
        net.deliver(1000)
        net.step()
    assert new.state() is not None


@pytest.mark.parametrize("was_asked", [False, True], ids=["before", "after a donor was told its step"])
def test_who_asks_members_that_wait_for_others_is_let_in_first(was_asked: bool) -> None:
    net = Net(2, 1000)
    new = net.all[JOINER]
    if was_asked:
        new.ask(net.members, 4000)
        net.deliver(100)
        assert all(net.all[key].gives for key in net.members)
    for key in net.members:
        net.all[key].pause(True)
    if was_asked:
        net.deliver(100)
        assert new.refused is not None and not new.refused.final and not new.asks_in
    new.ask(net.members, 4000)
    net.deliver(100)
    assert new.refused is not None and not new.refused.final and new.asks_in
    assert not any(net.all[key].gives for key in net.members)
    for key in net.members:
        net.all[key].pause(False)
    new.ask(net.members, 4000)
    for _ in range(6):
        net.deliver(100)
        net.step()
    assert new.state() is not None


def test_a_donor_that_is_past_the_step_says_so_and_the_joiner_asks_anew() -> None:
    net = Net(2, 10)
    new = net.all[JOINER]
    new.ask(net.members, 40)
    net.deliver(1)
    net.collect()  # the order is on its way to the other member
    order = net.way.popleft()
    for _ in range(5):
        net.step()
    net.way.append(order)
    net.deliver(100)
    net.step()
    net.deliver(100)
    assert new.refused is not None and not new.refused.final and "past the step" in new.refused.reason
    new.ask(net.members, 40)
    for _ in range(6):
        net.deliver(100)
        net.step()
    assert new.state() is not None


def test_a_joiner_that_is_too_slow_is_told_its_rates() -> None:
    donor = Donor(Give(JOINER, 0, 0, ["0"]), 0)
    big = torch.zeros(1 << 22)
    donor.state(state(0, 10), state(0, 10).structure(), 0.0)
    whys = [donor.result(step, big, where_behind(step), 0, step + 1.0) for step in range(6)]
    assert whys[:4] == [""] * 4
    assert "takes 0 Mbit/s of a donor, and a donor's part of the steps makes" in next(filter(None, whys))


def test_a_lost_donor_ends_the_attempt() -> None:
    new = JoinTransfers(JOINER)
    new.ask(["0"], 40)
    new.handle_lost("0")
    assert new.refused is not None and not new.refused.final
    assert new.result(3, result(0, 10)) is None
    new.handle("0", Refused(0, "too slow", final=True), [])
    with pytest.raises(PeerLost, match="cannot join: too slow"):
        new.result(3, result(0, 10))


def test_results_are_acknowledged_when_the_loop_is_near() -> None:
    copy = Copy(0, 40, set())
    data = bytes(40)
    copy.near(2)
    assert copy.take("0", Chunk(RESULT, 0, 6, 0, 40, 9, 0, data)) == [("0", 40)]
    assert copy.take("0", Chunk(RESULT, 0, 7, 0, 40, 9, 0, data)) == []
    assert copy.near(3) == [("0", 40)]
    assert not copy.is_near(6) and copy.is_near(7)


def test_what_no_sound_donor_gives_is_refused() -> None:
    copy = Copy(0, 40, set())
    with pytest.raises(DataError, match="this process takes"):
        copy.take("0", Chunk(RESULT, 0, 0, 0, 1 << 40, 0, 0, b"1"))
    copy.take("0", Chunk(RESULT, 0, 0, 0, 8, 0, 0, b"1"))
    with pytest.raises(DataError, match="donors differ"):
        copy.take("1", Chunk(RESULT, 0, 0, 0, 9, 0, 0, b"1"))
    copy.take("1", Chunk(RESULT, 0, 1, 0, 12, 0, 0, bytes(12)))
    with pytest.raises(DataError, match="result of step 1 has 12 bytes"):
        copy.result(1, torch.zeros(2))
    donor = Donor(Give(JOINER, 0, 0, ["0"]), 0)
    with pytest.raises(DataError, match="acknowledges 7 bytes"):
        donor.got(7)
    with pytest.raises(DataError, match="its structure says 40"):
        State.assembled(state(0, 10).structure(), bytearray(39))
    with pytest.raises(DataError, match="cannot be read"):
        State.assembled(b"no pickle", bytearray())


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_joiner_that_holds_something_else_is_refused_before_it_asks_to_be_in(is_paused: bool) -> None:
    net = Net(2, 10)
    new = net.all[JOINER]
    for key in net.members:
        net.all[key].terms = None  # its run has yet to begin
        net.all[key].pause(is_paused)
    new.terms = ["tweed 1", "check_every 0"]
    new.ask(net.members, 40)
    net.deliver(100)
    assert new.refused is None
    for key in net.members:
        net.all[key].begin(["tweed 1", "check_every 5"], net.members)
    net.deliver(100)
    assert new.refused is not None and new.refused.final
    assert "the others have check_every 5, and this process has check_every 0" in new.refused.reason
    assert not new.asks_in and not any(net.all[key].gives for key in net.members)


def test_terms_of_a_large_model_are_short_and_tell_it_from_others() -> None:
    lines = [f"layer {number} float32[8] {'x' * 1000}" for number in range(10_000)]
    said = shortened(lines)
    assert sum(map(len, said)) < 1 << 16
    for other in (lines[:-1], [*lines[:50], lines[50] + "y", *lines[51:]], [*lines[:-1], "another"]):
        assert difference(said, shortened(other)) and not difference(said, shortened(lines))


MESSAGES = [
    Meeting(3, 0, 29500, "127.0.0.1"),
    Ask(1, 4, ["a"], ["check_every 5"]),
    Give("a", 1, 7, ["b", "c"]),
    Got(0, 65536),
    Refused(2, "why", True),
]


@pytest.mark.parametrize("said", MESSAGES)
def test_messages_cross_whole(said: Meeting) -> None:
    assert read(packed(said)) == said


@given(
    st.binary(max_size=40) | st.sampled_from([b"7", b"[1]", b'["Ask", 1]', b'["Ask", 1, "a"]', b"[" * 9999])
)
def test_what_is_no_message_is_an_error(data: bytes) -> None:
    with pytest.raises(DataError, match=r"no message|no part"):
        read(b"\xfe" + data)
    if len(data) < 38:
        with pytest.raises(DataError, match="too short"):
            Chunk.read(data)


WRONG = [
    b'["Meeting", 1, 2, 99999, "a"]',
    b'["Meeting", 1, 2, -1, "a"]',
    b'["Known", [["a", "b", "c"]], -1, 0, 0, ""]',
    b'["Known", [["a"]], -1, 0, 0, ""]',
    b'["Ask", 4294967296, 1, [], []]',
    b'["Ask", 0, 1, []]',
    b'["Got", -1, 1]',
]


@pytest.mark.parametrize("data", WRONG)
def test_what_cannot_be_in_a_message_is_an_error(data: bytes) -> None:
    with pytest.raises(DataError, match="has other parts"):
        read(b"\xfe" + data)


NUMBERS = st.sampled_from([-1, 0, 1, 2, 7, (1 << 32) - 1, (1 << 63) - 1])
KEYS = st.sampled_from(["0", "1", JOINER, "nobody", ""])
ATTEMPTS = st.sampled_from([0, 1, (1 << 32) - 1])
SAID = st.one_of(
    st.builds(Ask, ATTEMPTS, NUMBERS, st.lists(KEYS, max_size=3), st.lists(KEYS, max_size=1)),
    st.builds(Give, KEYS, ATTEMPTS, NUMBERS, st.lists(KEYS, max_size=3)),
    st.builds(Refused, ATTEMPTS, KEYS, st.booleans()),
    st.builds(Got, ATTEMPTS, NUMBERS),
)


@given(st.lists(st.tuples(KEYS, SAID), max_size=8), st.integers(0, 3))
def test_whatever_is_said_only_its_link_is_cut(said: list[tuple[str, Ask]], step: int) -> None:
    one, members = JoinTransfers("0"), ["0", "1"]
    one.ask(members, 1 << 20)
    for key, what in said:
        with contextlib.suppress(DataError):
            one.handle(key, read(packed(what)), members)
        one.give_state(step, lambda: state(step, 10), 0.0)
        one.give_result(step, result(step, 10), where_behind(step), 0, 0.0)
        while one.poll(0.0) is not None:
            pass


def test_of_meetings_that_of_a_far_epoch_moves_nobody() -> None:
    said = Meetings()
    now = Meeting(1, 2, 29500, "a")
    assert said.note(now, 1) and not said.note(Meeting(1, 1, 29500, "b"), 1)
    for far in range(1 << 62, (1 << 62) + 100):
        said.note(Meeting(far, 0, 29500, "c"), 1)
    assert said.last(1) == now
    assert said.note(Meeting(2, 0, 29500, "d"), 1) and said.last(1) == now
    assert said.last(2).host == "d" and said.last(3).host == "d"
    assert said.note(Meeting(3, 0, 29500, "e"), 3) and not said.note(now, 3)
    assert len(said._of) <= 16


def test_an_order_that_comes_late_does_not_take_the_place_of_a_later_attempt() -> None:
    """Such as of a joiner that was interrupted, and asked another member at once."""
    one = JoinTransfers("1")
    for attempt in (3, 2):
        one.handle("0", Give(JOINER, attempt, 0, ["0", "1"]), ["0", "1"])
    one.give_state(0, lambda: state(0, 10), 0.0)
    attempts = set[int]()
    while (said := one.poll(0.0)) is not None:
        attempts.add(Chunk.read(said[1]).attempt)
    assert attempts == {3}


def test_what_was_given_already_is_not_given_again_and_an_interrupted_joiner_is_cut_off() -> None:
    one = JoinTransfers("0")
    one.handle("1", Give(JOINER, 0, 0, ["0"]), ["0"])
    one.give_state(0, lambda: state(0, 10), 0.0)
    for step in (0, 0, 1):
        one.give_result(step, result(step, 10), where_behind(step), 0, 1.0)
    steps = []
    while (said := one.poll(0.0)) is not None:
        chunk = Chunk.read(said[1])
        steps += [chunk.step] if chunk.what == RESULT else []
    assert steps == [0, 1]
    new = JoinTransfers(JOINER)
    new.cut_short()
    assert new.refused is None, "it has asked for nothing"
    new.ask(["0"], 0)
    new.cut_short()
    assert new.refused is not None and not new.refused.final
