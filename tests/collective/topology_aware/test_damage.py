"""Schedules that were damaged are refused, and the error names step, link, rank and chunk."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.collective.topology.families import ALL, MORE, networks
from tests.collective.topology_aware.test_properties import NAMES, Forests, collectives, forests, star, sums
from tweed.collective import Schedule, Send, find, schedule, topology
from tweed.collective.topology import Topology
from tweed.collective.topology_aware.trees import schedule_of
from tweed.errors import ScheduleError

COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter"]
HOP = re.compile(r"step \d+, link \d+ -> \d+, chunk \d+")
SHORT = re.compile(r"rank \d+ ends without the contribution of rank \d+ in chunk \d+; ")


def again(sound: Schedule, sends: Sequence[Send]) -> Schedule:
    """A schedule of these sends, for the same collective on the same network."""
    return schedule(sound.name, sound.collective, sound.ranks, sound.chunks, sends, topology=sound.topology)


def changed(send: Send, **fields: object) -> Send:
    names = ("step", "src", "dst", "chunk", "reduce", "route", "after")
    return Send(**{name: fields.get(name, getattr(send, name)) for name in names})


def refused(sound: Schedule, sends: Sequence[Send]) -> str:
    with pytest.raises(ScheduleError) as raised:
        again(sound, sends)
    text = str(raised.value)
    assert HOP.search(text) or SHORT.match(text), text
    assert re.search(r"rank \d+|link \d+ -> \d+", text) and re.search(r"chunk \d+", text), text
    return text


def unpinned(sound: Schedule) -> list[Send]:
    """The sends without `after`, whose numbers would mean others once one is gone."""
    return [changed(send, after=[]) for send in sound]


def dropped(sends: list[Send], at: int) -> list[Send]:
    return sends[:at] + sends[at + 1 :]


def doubled(sends: list[Send], at: int) -> list[Send]:
    return [*sends, sends[at]]


def elsewhere(sends: list[Send], at: int) -> list[Send]:
    """Over a link to a switch that the network does not have."""
    return [*sends[:at], changed(sends[at], route=[10**6]), *sends[at + 1 :]]


def to_itself(sends: list[Send], at: int) -> list[Send]:
    return [*sends[:at], changed(sends[at], dst=sends[at].src, route=[]), *sends[at + 1 :]]


def to_a_stranger(sends: list[Send], at: int) -> list[Send]:
    return [*sends[:at], changed(sends[at], dst=10**6), *sends[at + 1 :]]


def of_another_chunk(sends: list[Send], at: int) -> list[Send]:
    return [*sends[:at], changed(sends[at], chunk=10**6), *sends[at + 1 :]]


def turned_round(sends: list[Send], at: int) -> list[Send]:
    """A sum where a copy belongs, or a copy where a sum does."""
    return [*sends[:at], changed(sends[at], reduce=not sends[at].reduce), *sends[at + 1 :]]


DAMAGES = [dropped, doubled, elsewhere, to_itself, to_a_stranger, of_another_chunk]


@pytest.mark.parametrize("damage", DAMAGES)
@given(drawn=forests(), collective=st.sampled_from(COLLECTIVES), data=st.data())
def test_damaged_trees_are_refused(
    damage: Callable[[list[Send], int], list[Send]], drawn: Forests, collective: str, data: st.DataObject
) -> None:
    network, down, up, pieces = drawn
    sound = schedule_of(down, "drawn", collective, network, up=up, pieces=pieces)
    refused(sound, damage(unpinned(sound), data.draw(st.integers(0, len(sound) - 1))))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15)
@given(data=st.data())
def test_damaged_builders_are_refused(name: str, data: st.DataObject) -> None:
    collective = data.draw(st.sampled_from(collectives(name)))
    row = find(collective, name)
    network = data.draw(st.sampled_from([each for each in (*ALL, *MORE) if not row.refuses(each)]))
    sound = row.schedule(collective, network, row.pieces[0])
    assert again(sound, list(sound)).digest == sound.digest
    damage = data.draw(st.sampled_from(DAMAGES))
    refused(sound, damage(unpinned(sound), data.draw(st.integers(0, len(sound) - 1))))


@given(drawn=forests(), collective=st.sampled_from(COLLECTIVES), data=st.data())
def test_moved_or_turned_it_is_refused_or_still_right(
    drawn: Forests, collective: str, data: st.DataObject
) -> None:
    """Some moves do no harm: what nobody waits for may come later. The checker and plain sums must agree."""
    network, down, up, pieces = drawn
    sound = schedule_of(down, "drawn", collective, network, up=up, pieces=pieces)
    sends, at = unpinned(sound), data.draw(st.integers(0, len(sound) - 1))
    if data.draw(st.booleans()):
        moved = turned_round(sends, at)
    else:
        moved = [*dropped(sends, at), changed(sends[at], step=data.draw(st.integers(0, 20)))]
    try:
        right = again(sound, moved)
    except ScheduleError as error:
        assert HOP.search(str(error)) or SHORT.match(str(error)), error
        return
    found, wanted = sums(right, seed=right.digest)
    assert all((found[place] == wanted[place]).all() for place in wanted)


@given(drawn=forests(), collective=st.sampled_from(COLLECTIVES), data=st.data())
def test_sent_again_later_sums_are_refused_and_copies_do_no_harm(
    drawn: Forests, collective: str, data: st.DataObject
) -> None:
    """A copy that comes again brings what is there already; a sum would count a contribution twice."""
    network, down, up, pieces = drawn
    sound = schedule_of(down, "drawn", collective, network, up=up, pieces=pieces)
    sends = unpinned(sound)
    again_later = data.draw(st.sampled_from(sends))
    doubled_later = [*sends, changed(again_later, step=again_later.step + data.draw(st.integers(1, 20)))]
    if again_later.reduce:
        refused(sound, doubled_later)
    else:
        found, wanted = sums(again(sound, doubled_later), sound.digest)
        assert all((found[place] == wanted[place]).all() for place in wanted)


@given(drawn=forests(), collective=st.sampled_from(COLLECTIVES), data=st.data())
def test_before_its_cause_or_after_its_use_is_refused(
    drawn: Forests, collective: str, data: st.DataObject
) -> None:
    network, down, up, _ = drawn
    sound = schedule_of(down, "drawn", collective, network, up=up)
    sends = unpinned(sound)
    waits = [(a, b) for a, one in enumerate(sends) for b, other in enumerate(sends) if feeds(one, other)]
    if not waits:
        return
    cause, use = data.draw(st.sampled_from(waits))
    if data.draw(st.booleans()):
        refused(sound, [*dropped(sends, cause), changed(sends[cause], step=sends[use].step)])
    else:
        refused(sound, [*dropped(sends, use), changed(sends[use], step=sends[cause].step)])


def feeds(cause: Send, use: Send) -> bool:
    """`use` carries on what `cause` brought."""
    same = cause.dst == use.src and cause.chunk == use.chunk and cause.reduce == use.reduce
    return same and cause.step < use.step


@given(network=networks(even=True), data=st.data())
def test_sends_that_wait_for_each_other_are_refused(network: Topology, data: st.DataObject) -> None:
    """A sum on its way to the root is made to wait for what the root sends back."""
    root = data.draw(st.integers(0, network.ranks - 1))
    sound = schedule_of([star(network, root)], "drawn", "all_reduce", network)
    sends = unpinned(sound)
    first = data.draw(st.integers(0, len(sends) // 2 - 1))
    back = next(at for at, send in enumerate(sends) if send.dst == sends[first].src)
    sends[first] = changed(sends[first], after=[back])
    assert "would wait for ever: this send waits for (step" in refused(sound, sends)


def test_the_words_for_a_cycle() -> None:
    network = topology.ring(3)
    sends = [Send(0, 0, 1, 0, False, after=[1]), Send(0, 0, 2, 0, False, after=[0])]
    with pytest.raises(ScheduleError) as raised:
        schedule("cycle", "broadcast", 3, 1, sends, topology=network)
    assert str(raised.value) == (
        "step 0, link 0 -> 1, chunk 0: rank 0 would wait for ever: this send waits for "
        "(step 0, link 0 -> 2, chunk 0), which waits for it"
    )
