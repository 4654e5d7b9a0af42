"""Ordered transmission: both sides as state machines, by hand. Whole iterations are in tests/simulate."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.cadence import (
    ContributionReceived,
    Decision,
    IterationStarted,
    Moves,
    Ordered,
    Ready,
    ServerDecision,
    ServerPolicy,
    ServerStopped,
    StepDone,
    Timer,
)
from tweed.cadence.server_policy import within
from tweed.errors import UsageError

LENGTHS = st.floats(1e-6, 1e6)


@given(lengths=st.tuples(LENGTHS, LENGTHS), pace=LENGTHS, shift=st.floats(0.0, 1e3))
def test_longer_is_earlier(lengths: tuple[float, float], pace: float, shift: float) -> None:
    timer = Timer(pace, shift)
    short, long = sorted(lengths)
    assert timer.expires(long) <= timer.expires(short)


@given(length=LENGTHS, pace=LENGTHS, shift=st.floats(0.0, 1e3))
def test_silence_says_how_long_the_unsaid_can_be(length: float, pace: float, shift: float) -> None:
    timer = Timer(pace, shift)
    level = timer.level(timer.expires(length))
    assert math.isclose(level, length, rel_tol=1e-6, abs_tol=1e-9 * (1 + shift))


def test_a_window_ends() -> None:
    timer = within(0.05, 3.0)
    assert math.isclose(timer.expires(0.0), 0.05)
    assert math.isclose(timer.expires(3.0), 0.025)
    assert timer.level(0.05) < 1e-12


ORDERED = Ordered(ServerPolicy(share=0.5))


def ready(norm: float) -> object:
    state = ORDERED.handle(IterationStarted(1.0, 1.0), ORDERED.start(), 0.0)
    return ORDERED.handle(Ready(norm), state, 10.0)


def test_a_rank_speaks_when_its_time_has_come() -> None:
    state = ready(1.0)
    assert ORDERED.due(state) == 10.5
    assert ORDERED.poll(state, 10.4)[0] is Decision.WAITING
    decision, after = ORDERED.poll(state, 10.5)
    assert decision is Decision.TIMER_EXPIRED
    assert ORDERED.poll(after, 11.0)[0] is Decision.UNMEASURED  # one message per iteration


@pytest.mark.parametrize(("level", "expected"), [(1.0, Decision.ENOUGH), (0.9, Decision.ABOVE_LEVEL)])
def test_a_stop_spares_what_is_short_and_asks_for_what_is_long(level: float, expected: Decision) -> None:
    state = ORDERED.handle(ServerStopped(level), ready(1.0), 10.1)
    assert ORDERED.poll(state, 10.1)[0] is expected


def test_who_has_nothing_to_say_says_so_at_once() -> None:
    decision, _ = ORDERED.poll(ready(0.0), 10.0)
    assert decision is Decision.NOTHING and decision.silent


def test_the_server_stops_at_the_first_message_that_shows_the_rest_is_short() -> None:
    policy = ServerPolicy(share=0.5, silence=False)
    state = policy.handle(IterationStarted(1.0, 1.0), policy.start(), 0.0)
    for norm, total in ((8.0, 8.0), (2.0, 9.0)):
        assert policy.poll(state, 4, 1e9) is ServerDecision.LISTEN
        state = policy.handle(ContributionReceived(norm, total), state, 1.0)
    assert policy.level(state, 4) == 2.25
    assert policy.poll(state, 4, 1.0) is ServerDecision.SHORT


def test_the_server_knows_from_silence() -> None:
    policy = ServerPolicy(share=0.5)
    state = policy.handle(IterationStarted(1.0), policy.start(), 5.0)
    state = policy.handle(ContributionReceived(8.0, 8.0), state, 5.125)
    assert policy.due(state, 3) == 5.5  # half of 8 over two ranks: 2 each, whose timer rings after 1/2
    assert policy.poll(state, 3, 5.4) is ServerDecision.LISTEN
    assert policy.poll(state, 3, 5.5) is ServerDecision.LATE


def test_with_nothing_allowed_the_server_waits_for_all() -> None:
    policy = ServerPolicy(history=Moves(0.1, share=0.0))
    state = policy.handle(StepDone(3.0), policy.start(), 0.0)
    state = policy.handle(IterationStarted(1.0), state, 0.0)
    for _ in range(3):
        assert policy.due(state, 3) == math.inf
        assert policy.poll(state, 3, 1e9) is ServerDecision.LISTEN
        state = policy.handle(ContributionReceived(1e-9, 5.0), state, 1.0)
    assert policy.poll(state, 3, 1.0) is ServerDecision.ALL


@pytest.mark.parametrize("settings", [{}, {"share": -1.0}, {"share": 0.5, "history": Moves(0.1)}])
def test_a_server_policy_has_one_test(settings: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="either"):
        ServerPolicy(**settings)  # type: ignore[arg-type]
