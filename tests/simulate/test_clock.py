"""A virtual clock: what happens, in which order."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tweed.simulate.clock import Clock


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 1)), max_size=20))
def test_events_happen_by_time_then_rank_then_as_they_were_asked_for(events: list[tuple[int, int]]) -> None:
    clock, seen = Clock(), []
    for number, (seconds, rank) in enumerate(events):
        clock.after(seconds, lambda number=number: seen.append((clock.now, number)), rank)
    while clock.next_s() < math.inf:
        clock.run_next()
    order = sorted(range(len(events)), key=lambda number: (*events[number], number))
    assert seen == [(float(events[number][0]), number) for number in order]


def test_an_event_may_ask_for_another_one_and_what_is_never_is_forgotten() -> None:
    clock, seen = Clock(10.0), []
    clock.after(1.0, lambda: clock.after(0.0, lambda: seen.append(clock.now)))
    clock.after(math.inf, lambda: seen.append(math.inf))
    clock.run_next()
    clock.run_next()
    assert seen == [11.0] and clock.next_s() == math.inf


def test_an_event_at_a_time_comes_exactly_then_and_one_in_the_past_now() -> None:
    clock, seen = Clock(0.1), []
    clock.at(0.1 + 0.2, lambda: clock.at(0.0, lambda: seen.append(clock.now)))
    clock.run_next()
    clock.run_next()
    assert seen == [0.1 + 0.2]


def test_time_does_not_go_back() -> None:
    clock = Clock()
    clock.pass_to(3.0)
    clock.pass_to(2.0)
    assert clock.now == 3.0
