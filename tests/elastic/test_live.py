"""Live members: one is killed, the others go on in the same processes, and lose no sample."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.elastic.checkpoint_soak import Undisturbed, drawn, soak
from tests.elastic.trains import (
    KILLED_AT,
    STEPS,
    STEPS_TOGETHER,
    comes_back,
    cut_off,
    differs,
    joins,
    leaves,
    mended,
    stops,
    stores,
    trains,
    with_clocks,
)
from tests.faults.ring import endings
from tests.simulate.test_elastic import trained
from tweed.elastic import Elastic, group, start
from tweed.elastic.epoch import Epoch
from tweed.elastic.group import Groups, _WhileItHolds, breaks
from tweed.elastic.messages import Meeting
from tweed.errors import DeadlineExceeded, PeerLost, UsageError
from tweed.testbed import Failed, Network, Ranks, Said, opened
from tweed.testbed.faults import Plan
from tweed.train.folder import latest


@pytest.mark.parametrize("victim", [0, 2])
def test_after_a_kill_the_survivors_go_on_and_the_model_is_that_of_a_run_without(victim: int) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with Ranks(trains, 4, store.port, victim) as ranks:
        ended = list(endings(ranks, 3).values())
    assert len({digest for digest, _, _ in ended}) == 1
    assert all(epochs == [1, 2] for _, _, epochs in ended)
    expected = trained(Plan(), steps=STEPS).params
    assert torch.allclose(ended[0][1], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("victim", [0, 2])
def test_after_a_stop_the_others_go_on_long_before_their_timeout(victim: int) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with Ranks(stops, 4, store.port, victim) as ranks:
        ended = list(endings(ranks, 3).values())
        ranks.kill(victim, signal.SIGCONT)
        stopped = endings(ranks, 1)[victim]
    assert len({digest for digest, _, _ in ended}) == 1
    assert all(epochs == [1, 2] for _, _, epochs in ended)
    assert torch.allclose(ended[0][1], trained(Plan(), steps=STEPS).params, rtol=0, atol=1e-12)
    assert "gone on without this process, in epoch 2" in stopped


def test_a_member_whose_clock_is_minutes_off_goes_on_with_the_others(tmp_path: Path) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with Ranks(with_clocks, 4, store.port, tmp_path) as ranks:
        first, off, killed, last = ranks.join(60)
    assert [epochs for _, epochs, _ in (first, off, killed, last)] == [[1, 2], [1, 2], [], [1, 2]]
    assert off[2] - first[2] > 200
    expected = trained(Plan(), steps=STEPS).params
    for params, *_ in (first, off, last):
        assert params == pytest.approx(expected.tolist(), rel=0, abs=1e-12)


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize(("pair", "one_way"), [((0, 2), False), ((3, 1), True)])
def test_a_cut_link_that_others_reach_round_costs_no_member(
    tmp_path: Path, pair: tuple[int, int], one_way: bool
) -> None:
    with opened(Network(rate_bits=1e9), 4) as bed, Ranks(cut_off, 4, tmp_path, bed=bed) as ranks:
        said = set[int]()
        while len(said) < 4:
            events = ranks.poll(60)
            said |= {event.rank for event in events if isinstance(event, Said)}
            assert events and not any(isinstance(event, Failed) for event in events), events
        bed.cut_way(*pair)
        if not one_way:
            bed.cut_way(*reversed(pair))
        (tmp_path / "cut").touch()
        ended = ranks.join(120)
    assert len({digest for digest, *_ in ended}) == 1
    assert all(epochs == [1, 2] for _, _, epochs, _ in ended)
    assert torch.allclose(ended[0][1], trained(Plan(), steps=STEPS).params, rtol=0, atol=1e-12)
    links = [found for *_, found in ended]
    assert all((links[a][b] == "relay") == ({a, b} == set(pair)) for a in range(4) for b in range(4))


@pytest.mark.usefixtures("namespaces")
def test_a_link_that_works_again_is_used_again(tmp_path: Path) -> None:
    with opened(Network(rate_bits=1e9), 3) as bed, Ranks(mended, 3, tmp_path, bed=bed) as ranks:
        for epoch, happens in ((1, bed.cut_way), (2, bed.heal_way)):
            said = set[int]()
            while len(said) < 3:
                events = ranks.poll(60)
                said |= {event.rank for event in events if isinstance(event, Said) and event.value == epoch}
                assert events and not any(isinstance(event, Failed) for event in events), events
            happens(0, 2)
            happens(2, 0)
        ended = ranks.join(120)
    assert len({digest for digest, *_ in ended}) == 1
    assert all(epochs == [1, 2, 3] and "relay" not in links for _, epochs, links in ended)


def test_calls_are_aborted_if_a_link_of_the_group_is_cut_and_the_next_one_does_without() -> None:
    epoch = Epoch(2, ("a", "b", "c"), broken=True, missing=((0, 2),))
    assert breaks("abc", 1, epoch)
    assert not breaks("abc", 1, replace(epoch, broken=False)), "all know it, and enter in their time"
    assert not breaks("abc", 1, epoch, epoch.cut), "it does without already"
    assert not breaks("bc", 1, epoch), "it never had it"
    assert breaks("abc", 1, replace(epoch, number=3, broken=False)), "one between may have been broken"


def test_who_calls_to_the_meeting_is_the_first_that_all_reach() -> None:
    members = ("a", "b", "c")
    assert Epoch(1, members).caller == "a"
    assert Epoch(1, members, missing=((0, 2),)).caller == "b"
    assert Epoch(1, members, missing=((0, 1), (0, 2), (1, 2))).caller == "a"


@pytest.mark.parametrize(
    ("members", "number", "broken", "aborted"),
    [
        ("abcd", 2, False, False),
        ("ab", 2, False, False),
        ("ab", 2, True, True),
        ("ab", 3, False, True),
        ("abc", 3, True, False),
    ],
)
def test_calls_are_aborted_if_a_member_of_the_group_is_lost(
    members: str, number: int, broken: bool, aborted: bool
) -> None:
    epoch = Epoch(number, tuple(members), broken=broken)
    assert breaks("abc", 1, epoch) is aborted
    assert not breaks("", 1, epoch)  # no group stands


@pytest.mark.parametrize(("life", "aborted"), [(0, False), (1, True)])
def test_calls_are_aborted_if_a_member_is_another_life_of_its_key(life: int, aborted: bool) -> None:
    epoch = Epoch(2, ("a", "b"), broken=True, lives=(0, life))
    assert breaks("ab", 1, epoch, lives={"a": 0, "b": 0}) is aborted
    assert not breaks("a", 1, epoch, lives={"a": 0}), "it was none of the group"


class Abortable:
    """A group."""

    def __init__(self) -> None:
        self.aborted = False

    def _get_backend(self, device: torch.device) -> Abortable:
        return self

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.parametrize("lost", [True, False])
def test_calls_are_aborted_if_a_member_is_lost_while_the_group_is_made(
    monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    next_ = Epoch(2, ("b",) if lost else ("b", "c", "d"), broken=lost)
    told, made = Told((Epoch(1, ("b", "c")), NONE), (next_, NONE)), Abortable()

    def make(*how: object) -> Abortable:
        told._told.pop(0)
        return made

    monkeypatch.setattr(group, "_made_default", make)
    Groups(told, 60.0).form()  # type: ignore[arg-type]
    assert made.aborted is lost


class Told:
    """What a control knows, one after the other; a wait that nothing ends is over at once."""

    key, host, address = "b", "127.0.0.1", "127.0.0.1:1"
    is_paused, in_group = False, False

    def __init__(self, *told: tuple[Epoch, Meeting]) -> None:
        self._told, self.called = list(told), list[Meeting]()

    @property
    def epoch(self) -> Epoch:
        return self._told[0][0]

    def when_changed(self, call: object) -> None: ...

    @property
    def meeting(self) -> Meeting:
        return self._told[0][1]

    def call_meeting(self, meeting: Meeting) -> None:
        self.called.append(meeting)

    def delegate(self, epoch: Epoch, attempt: int) -> None:
        self.called.append(Meeting(epoch.number, attempt, 0, "c"))
        self._told.pop(0)

    def wait_for(
        self, condition: Callable[[Epoch, Meeting], bool], timeout_s: float
    ) -> tuple[Epoch, Meeting]:
        while not condition(*self._told[0]):
            if len(self._told) == 1:
                raise DeadlineExceeded("nobody calls")
            self._told.pop(0)
        return self._told[0]


NONE = Meeting(0, 0, 0, "")


def test_who_is_first_when_the_first_is_lost_before_it_has_called_calls_to_the_meeting() -> None:
    told = Told((Epoch(1, ("a", "b", "c")), NONE), (Epoch(2, ("b", "c")), NONE))
    epoch, meeting = Groups(told, 60.0)._next_meeting()  # type: ignore[arg-type]
    assert (epoch.number, [meeting]) == (2, told.called)


def test_who_is_not_first_goes_where_it_is_called() -> None:
    call = Meeting(2, 0, 5000, "127.0.0.1")
    told = Told((Epoch(1, ("a", "b")), NONE), (Epoch(2, ("c", "b")), NONE), (Epoch(2, ("c", "b")), call))
    assert Groups(told, 60.0)._next_meeting() == (Epoch(2, ("c", "b")), call)  # type: ignore[arg-type]
    assert told.called == []


def test_who_is_in_no_later_epoch_meets_nobody() -> None:
    without = Epoch(2, ("a", "c"))
    told = Told((Epoch(1, ("a", "b", "c")), NONE), (without, Meeting(2, 0, 5000, "127.0.0.1")))
    with pytest.raises(DeadlineExceeded):  # live: Evicted, with the next tick
        Groups(told, 60.0)._next_meeting()  # type: ignore[arg-type]


def test_who_cannot_be_called_has_another_one_call_and_one_more_when_that_is_lost() -> None:
    first, next_ = Epoch(1, ("b", "c", "d")), Epoch(2, ("b", "d"))
    passed, again = Meeting(1, 0, 0, "c"), Meeting(2, 0, 0, "d")
    call = Meeting(2, 0, 5000, "127.0.0.1")
    told = Told((first, NONE), (first, passed), (next_, passed), (next_, again), (next_, call))
    told.address = ""
    assert Groups(told, 60.0)._next_meeting() == (next_, call)  # type: ignore[arg-type]
    assert [(one.epoch, one.port) for one in told.called] == [(1, 0), (2, 0)]


def test_nobody_waits_at_a_meeting_when_its_members_are_called_to_another() -> None:
    first = Meeting(1, 0, 70, "a")
    control: Any = SimpleNamespace(epoch=Epoch(1, ("a", "b")), meeting=first)
    store = _WhileItHolds(dist.HashStore(), control, first)
    store.set("a", "is here")
    control.meeting = Meeting(1, 1, 71, "a")
    with pytest.raises(PeerLost, match="meet once more"):
        store.check(["b"])


def test_who_is_named_by_who_cannot_be_called_calls() -> None:
    epoch = Epoch(1, ("a", "b"))
    told = Told((epoch, NONE), (epoch, Meeting(1, 3, 0, "b")))
    _, meeting = Groups(told, 60.0)._next_meeting()  # type: ignore[arg-type]
    assert [meeting] == told.called and meeting > Meeting(1, 3, 0, "b")


@pytest.mark.parametrize("victim", [None, 0, 3])
def test_a_joiner_takes_the_state_and_then_its_share(victim: int | None) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with Ranks(joins, 4, store.port, victim) as ranks:
        ended = list(endings(ranks, 4 if victim is None else 3).values())
    assert len({(digest, counted) for digest, _, _, counted in ended}) == 1
    counted = ended[0][3]
    assert all(0 <= began <= counted - STEPS_TOGETHER for _, _, began, _ in ended)
    expected = trained(Plan(), steps=counted).params
    assert torch.allclose(ended[0][1], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("how", "odd", "words"),
    [
        ("ends early", 0, "rank 0: the end of the loop with 4 steps"),
        ("keeps other bytes", 1, "rank 1: a check of what it keeps"),
    ],
)
def test_who_is_unlike_the_others_leaves_with_the_error_and_they_go_on(
    how: str, odd: int, words: str
) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with Ranks(differs, 3, store.port, how) as ranks:
        ended = ranks.join(60)
    assert [counted for _, counted in ended] == [4 if rank == odd else 8 for rank in range(3)]
    texts = [text for text, _ in ended]
    assert words in texts[odd] and f"Ranks [{odd}] differ from most" in texts[odd]
    assert [text for rank, text in enumerate(texts) if rank != odd] == ["", ""]


def test_of_two_that_differ_both_end_and_say_that_it_cannot_be_told_whose_fault_it_is() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with Ranks(differs, 2, store.port, "ends early") as ranks:
        ended = ranks.join(60)
    assert all("It cannot be told whose fault it is" in text and counted == 4 for text, counted in ended)
    assert all("rank 0: the end of the loop with 4 steps" in text for text, _ in ended)


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize(("behind", "victim"), [((0, 1), None), ((1, 4), 3), ((0, 2, 4), 0)])
def test_members_that_only_dial_out_found_and_join_and_are_lost(
    behind: tuple[int, ...], victim: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWEED_SECRET", "a secret of the tests of members")
    network = Network(rate_bits=1e9, nat=behind)
    with opened(network, 5) as bed, Ranks(joins, 5, tmp_path / "store", victim, bed=bed) as ranks:
        ended = list(endings(ranks, 5 if victim is None else 4).values())
    assert len({(digest, counted) for digest, _, _, counted in ended}) == 1
    expected = trained(Plan(), steps=ended[0][3]).params
    assert torch.allclose(ended[0][1], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("leavers", [(0,), (0, 2, 3)])
def test_who_leaves_breaks_no_step_and_the_others_go_on(leavers: tuple[int, ...]) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with Ranks(leaves, 4, store.port, leavers) as ranks:
        ended = ranks.join(60)
    stayed = [one for rank, one in enumerate(ended) if rank not in leavers]
    left = [one for rank, one in enumerate(ended) if rank in leavers]
    assert len({one.digest for one in stayed}) == 1
    expected = trained(Plan(), steps=STEPS).params
    assert torch.allclose(stayed[0].params, expected, rtol=0, atol=1e-12)
    for one in left:
        assert KILLED_AT <= one.steps_done < STEPS  # the others may compute anew what was its last step
        expected = trained(Plan(), steps=one.steps_done).params
        assert torch.allclose(one.params, expected, rtol=0, atol=1e-12)
    # Steps of milliseconds may come before the news of an epoch two steps ahead: then one is shared out anew.
    assert all(one.steps_done <= one.computed <= one.steps_done + 1 for one in ended)


def test_who_has_left_may_join_again_with_its_key(tmp_path: Path) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with Ranks(comes_back, 4, store.port, str(tmp_path / "key")) as ranks:
        *stayed, (left, back) = ranks.join(60)
    ended = [back, *(one for (one,) in stayed)]
    assert len({(one.digest, one.steps_done) for one in ended}) == 1
    assert left.steps_done < back.steps_done
    expected = trained(Plan(), steps=back.steps_done).params
    assert torch.allclose(back.params, expected, rtol=0, atol=1e-12)


def test_a_run_that_is_killed_while_it_writes_goes_on_with_any_number_of_members(tmp_path: Path) -> None:
    assert soak(tmp_path, drawn(4, 0.0, seed=4)) < 1e-12
    store, last = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False), latest(tmp_path) + 5
    with Ranks(stores, 3, store.port, tmp_path, "last", last) as ranks:
        ended = ranks.join(60)
    assert len({digest for digest, _ in ended}) == 1
    assert torch.allclose(ended[0][1], Undisturbed().at(last), rtol=0, atol=1e-12)
    assert latest(tmp_path) == last


def test_four_two_and_three_members_go_on_from_one_checkpoint_with_the_same_samples(tmp_path: Path) -> None:
    store, undisturbed = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False), Undisturbed()
    for last, members in ((5, 4), (11, 4), (16, 2), (21, 3)):
        with Ranks(stores, members, store.port, tmp_path, f"to {last}", last) as ranks:
            ended = ranks.join(60)
        assert len({digest for digest, _ in ended}) == 1
        assert torch.allclose(ended[0][1], undisturbed.at(last), rtol=0, atol=1e-12)
        assert latest(tmp_path) == last


def test_a_number_of_members_that_cannot_be_is_an_error() -> None:
    with pytest.raises(UsageError, match="give 1 <= least <= most"):
        Elastic(3, 2)
    with pytest.raises(UsageError, match="4 members begin"):
        start(dist.HashStore(), 0, 4, Elastic(1, 2))
