"""Schedules from Python: the checker's words, a builder of one's own, and values that behave like values."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.collective import (
    ONE_HOST,
    Schedule,
    Send,
    Shape,
    Topology,
    build,
    find,
    pattern,
    plan,
    register,
    schedule,
    table,
)
from tweed.collective.chooser import fitting
from tweed.errors import ScheduleError, UsageError


def two_lines(ranks: int) -> Iterator[Send]:
    """A builder as a user writes one: sums along a line to the last rank, and back."""
    for rank in range(ranks - 1):
        yield Send(step=rank, src=rank, dst=rank + 1, chunk=0, reduce=True)
    for rank in range(ranks - 1, 0, -1):
        yield Send(step=2 * ranks - rank, src=rank, dst=rank - 1, chunk=0, reduce=False)


@given(ranks=st.integers(1, 40))
def test_a_generator_of_sends_is_a_builder(ranks: int) -> None:
    made = schedule("two lines", "all_reduce", ranks, 1, two_lines(ranks))
    assert len(made) == 2 * (ranks - 1)
    assert made.cost(100).steps == len(made)


BROKEN = {
    "rank 1 ends without the contribution of rank 2 in chunk 0; the last arrival there was step 0, "
    "link 0 -> 1, chunk 0": [Send(0, 0, 1, 0, True)],
    "step 1, link 2 -> 1, chunk 0: the contribution of rank 2 would be counted twice in chunk 0 at rank 1": (
        [Send(0, 2, 1, 0, True), Send(1, 2, 1, 0, True)]
    ),
    "step 0, link 2 -> 1, chunk 0: a copy and another send, from rank 0, reach chunk 0 of rank 1": (
        [Send(0, 0, 1, 0, True), Send(0, 2, 1, 0, False)]
    ),
    "step 4, link 1 -> 1, chunk 0: rank 1 sends to itself": [Send(4, 1, 1, 0, True)],
    "step 4, link 1 -> 3, chunk 0: rank 3 is outside the group of 3 ranks": [Send(4, 1, 3, 0, True)],
    "step 4, link 1 -> 0, chunk 7: rank 1 sends chunk 7 of a buffer of 1 chunks": [Send(4, 1, 0, 7, True)],
    "step 0, link 0 -> 1, chunk 0: rank 0 would wait for ever: this send waits for (step 0, link 0 -> 2": [
        Send(0, 0, 1, 0, True, after=[1]),
        Send(0, 0, 2, 0, True, after=[0]),
        *(Send(0, src, dst, 0, True) for src, dst in ((1, 0), (1, 2), (2, 0), (2, 1))),
    ],
    "step 0, link 0 -> 1, chunk 0: waits for send 9, but there are only 1 sends": [
        Send(0, 0, 1, 0, True, after=[9])
    ],
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_schedule_is_named(text: str) -> None:
    sends = BROKEN[text]
    if "rank 1 ends" in text:
        sends = [*sends, Send(0, 1, 0, 0, True), Send(0, 2, 0, 0, True)]
    with pytest.raises(ScheduleError) as caught:
        schedule("broken", "all_reduce", 3, 1, sends)
    assert text in str(caught.value)


def test_a_value_that_is_not_there() -> None:
    with pytest.raises(ScheduleError, match=r"step 0, link 1 -> 2, chunk 0: rank 1 holds nothing of chunk 0"):
        schedule("broken", "broadcast", 3, 1, [Send(0, 0, 1, 0, False), Send(0, 1, 2, 0, False)])


def test_only_real_links() -> None:
    ring = Topology(4, [(rank, (rank + 1) % 4, 10**9, 1e-6) for rank in range(4)])

    def of(name: str) -> Schedule:
        sends = find("all_reduce", name).patterns["all_reduce"](4)
        return schedule(name, "all_reduce", 4, 4, sends, topology=ring)

    assert of("ring").topology == ring
    with pytest.raises(ScheduleError, match=r"step 0, link 1 -> 0, chunk 0: the topology has no link 1 -> 0"):
        of("pairwise")
    sends = [Send(step, step, (step + 1) % 4, 0, False) for step in range(3)]
    made = schedule("round", "broadcast", 4, 1, sends, topology=ring)
    assert made.digest == build("broadcast", "ring", 4).digest
    back = Send(0, 1, 0, 1, False, route=[2, 3])
    others = [Send(0, 2, 0, 2, False, route=[3]), Send(0, 3, 0, 3, False)]
    assert len(schedule("round", "gather", 4, 4, [back, *others], topology=ring)) == 3


def test_chunks_must_fit() -> None:
    with pytest.raises(ScheduleError, match=r"all_to_all over 3 ranks .* positive multiple of 9, not 3"):
        schedule("odd", "all_to_all", 3, 3, [])
    with pytest.raises(ScheduleError, match=r"no collective 'allreduce'; use one of all_reduce"):
        schedule("odd", "allreduce", 3, 3, [])


@pytest.mark.parametrize("sends", [[(0, 0, 1, 0, True)], [None], 3])
def test_sends_are_sends(sends: object) -> None:
    with pytest.raises(TypeError):
        schedule("odd", "all_reduce", 2, 1, sends)  # type: ignore[arg-type]


def test_an_error_of_the_generator_comes_through() -> None:
    def failing() -> Iterator[Send]:
        yield Send(0, 0, 1, 0, True)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        schedule("odd", "all_reduce", 2, 1, failing())


def test_schedules_are_values() -> None:
    one, other = build("all_reduce", "ring", 4), find("all_reduce", "ring").schedule("all_reduce", 4)
    assert one == other and one is not other
    assert hash(one) == hash(other) and len({one, other}) == 1
    assert one != build("all_reduce", "ring", 5)
    digest = f"{one.digest:016x}"
    assert repr(one) == f'Schedule("ring", "all_reduce", ranks=4, chunks=4, 24 sends, digest={digest})'


@pytest.mark.parametrize("topology", [None, Topology.complete(3, 10**9, 1e-5), Topology(3, [(0, 1, 1, 0.0)])])
def test_pickling_keeps_everything(topology: Topology | None) -> None:
    sends = [Send(0, 0, 1, 0, False), Send(1, 0, 1, 1, False, after=[0])]
    made = Schedule("mine", "broadcast", 2, 2, sends, topology=topology)
    back = pickle.loads(pickle.dumps(made))
    assert back == made and back.topology == topology and back.sends == sends


def test_sends_are_values_and_patterns() -> None:
    send = Send(3, 0, 1, 2, True, route=[5], after=[6])
    assert repr(send) == "Send(step=3, src=0, dst=1, chunk=2, reduce=True, route=[5], after=[6])"
    match send:
        case Send(3, 0, 1, chunk, True):
            assert chunk == 2
        case _:
            pytest.fail("a send matches its fields")


def test_time_over_a_topology() -> None:
    flat = Topology.complete(4, 1000, 0.5)
    assert build("all_reduce", "ring", 4).seconds(4000, flat) == pytest.approx(6 * (0.5 + 1.0))
    assert build("broadcast", "star", 4).seconds(1000, flat) == pytest.approx(0.5 + 3.0)
    with pytest.raises(ScheduleError, match=r"no link 0 -> 2"):
        build("broadcast", "star", 4).seconds(1000, Topology(4, [(0, 1, 1, 0.0)]))


def test_a_registered_builder_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_TABLE", dict(table._TABLE))
    cost = Shape(steps=2, messages=3, volume=2.0, fan_in=1)
    mine = pattern("two_lines", "all_reduce", chunks=lambda ranks: 1, shape=lambda ranks: cost)(two_lines)
    unpriced = pattern("unpriced_lines", "all_reduce", chunks=lambda ranks: 1)(two_lines)
    register(mine)
    register(mine)
    register(unpriced)
    asked = plan(3, ONE_HOST, {"all_reduce": "unpriced_lines"})
    assert asked.rows()[0][2] == schedule("unpriced_lines", "all_reduce", 3, 1, two_lines(3))
    assert "two_lines" in {row.name for row in fitting("all_reduce", Topology.complete(3, 10**9, 1e-5))}
    with pytest.raises(UsageError, match="is there already"):
        register(pattern("two_lines", "all_reduce", chunks=lambda ranks: 2)(two_lines))
    with pytest.raises(UsageError, match="no collective 'all_sort'"):
        register(pattern("two_lines", "all_sort", chunks=lambda ranks: 2)(two_lines))
