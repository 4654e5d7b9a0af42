"""One table for the stage: every cadence joins by adding a row. Ordered transmission has both sides by hand.

Whole iterations of it are in tests/simulate.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import FrozenInstanceError, asdict, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tweed.cadence import (
    ByShards,
    Cadence,
    ContributionReceived,
    Decision,
    Deferred,
    Event,
    EventTriggered,
    EveryStep,
    Intermittent,
    IterationStarted,
    Joined,
    LocalSteps,
    Moves,
    Nesterov,
    Ordered,
    Ready,
    ServerDecision,
    ServerPolicy,
    ServerStopped,
    StepDone,
    Stop,
    Timer,
)
from tweed.cadence.timers import within
from tweed.errors import UsageError

TABLE: list[Cadence[Any]] = [
    EveryStep(), Deferred(), LocalSteps(1), LocalSteps(2), LocalSteps(8), LocalSteps(3, outer=Nesterov()),
    Intermittent(), Intermittent(probability=0.5, seed=3), Intermittent(4, probability=0.1),
    EventTriggered(Moves(rate=0.1)), Ordered(ServerPolicy(history=Moves(rate=0.1))),
    Ordered(ServerPolicy(share=0.9)), ByShards(load=3), ByShards("auto", 3), ByShards(share=0.9),
]  # fmt: skip
KINDS: list[Event] = [
    StepDone(norm=0.5), StepDone(norm=2.0), Ready(0.0), Ready(1.5), Stop(), IterationStarted(1.0, 1.0),
]  # fmt: skip
EVENTS = st.lists(st.sampled_from(KINDS), max_size=40)

every_cadence = pytest.mark.parametrize("cadence", TABLE, ids=repr)


def drive(cadence: Cadence[Any], events: Iterable[Event]) -> Iterator[Decision]:
    """What `cadence` decides after each event, a second apart."""
    state = cadence.handle(Joined(1, 4), cadence.start(), 0.0)
    for now, event in enumerate(events):
        state = cadence.handle(event, state, float(now))
        decision, state = cadence.poll(state, float(now))
        yield decision


@every_cadence
def test_it_keeps_the_contract(cadence: Cadence[Any]) -> None:
    assert isinstance(cadence, Cadence)
    assert cadence.exchanges and cadence.exchanges <= {"gradient", "factors", "step", "difference", "model"}
    assert cadence.reason


@every_cadence
def test_a_decision_is_pure(cadence: Cadence[Any]) -> None:
    state = cadence.handle(StepDone(norm=1.0), cadence.start(), 0.0)
    assert cadence.poll(state, 1.0) == cadence.poll(state, 1.0)


@every_cadence
@given(events=EVENTS)
def test_its_state_survives_storage(cadence: Cadence[Any], events: list[Event]) -> None:
    state, decisions = cadence.handle(Joined(1, 4), cadence.start(), 0.0), []
    for now, event in enumerate(events):
        decision, state = cadence.poll(cadence.handle(event, state, float(now)), float(now))
        decisions.append(decision)
        state = replace(cadence.start(), **json.loads(json.dumps(asdict(state))))
    assert decisions == list(drive(cadence, events))


@every_cadence
def test_its_state_is_frozen(cadence: Cadence[Any]) -> None:
    state = cadence.start()
    with pytest.raises(FrozenInstanceError):
        setattr(state, next(iter(asdict(state))), 7)


@every_cadence
@given(events=EVENTS)
def test_nothing_is_left_to_exchange_after_a_stop(cadence: Cadence[Any], events: list[Event]) -> None:
    assert list(drive(cadence, [*events, Stop(), Stop()]))[-1] is Decision.AGREED


@given(every=st.integers(1, 9), steps=st.integers(0, 50))
def test_local_steps_exchange_once_per_round(every: int, steps: int) -> None:
    decisions = list(drive(LocalSteps(every), [StepDone()] * steps))
    exchanged = [number for number, decision in enumerate(decisions, start=1) if decision.exchange]
    assert exchanged == list(range(every, steps + 1, every))


def test_a_stop_ends_an_open_round_and_the_next_begins_anew() -> None:
    events = [StepDone(), Stop(), StepDone(), StepDone(), StepDone()]
    assert list(drive(LocalSteps(3), events)) == [
        Decision.ROUND_OPEN,
        Decision.LAST_ROUND,
        Decision.ROUND_OPEN,
        Decision.ROUND_OPEN,
        Decision.ROUND_FULL,
    ]


def test_every_step_exchanges_every_step_even_after_a_stop() -> None:
    decisions = list(drive(EveryStep(), [StepDone(), Stop(), StepDone()]))
    assert decisions == [Decision.EVERY_STEP, Decision.AGREED, Decision.EVERY_STEP]
    assert EveryStep().poll(EveryStep().start(), 0.0)[0] is Decision.EVERY_STEP  # before the first step


def test_each_decision_has_its_action_and_its_reason() -> None:
    assert (Decision.NEWS.exchange, Decision.NEWS.silent) == (True, False)
    assert (Decision.NOTHING.exchange, Decision.NOTHING.silent) == (True, True)
    assert (Decision.WAITING.exchange, Decision.WAITING.silent) == (False, False)
    assert Decision.ENOUGH.reason == "the server has heard enough"
    assert str(Decision.ENOUGH) == "exchange in silence: the server has heard enough"
    assert str(ServerDecision.LISTEN) == "listen: what is withheld may be too much"
    assert [verdict.stop for verdict in ServerDecision] == [False, True, True, True]
    assert len({decision.reason for decision in Decision}) == len(Decision)


@pytest.mark.parametrize(("lr", "momentum"), [(0.7, 0.9), (1.0, 0.0), (0.3, 0.5)])
def test_nesterov_is_that_of_torch(lr: float, momentum: float) -> None:
    random = torch.Generator().manual_seed(7)
    model = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    theirs = torch.optim.SGD([model], lr=lr, momentum=momentum, nesterov=momentum > 0)
    outer = Nesterov(lr, momentum)
    ours, state = model.detach().clone(), outer.start(model.detach())
    for _ in range(6):
        moved = torch.randn(5, generator=random, dtype=torch.float64)
        model.grad = -moved
        theirs.step()
        ours += outer.advance(moved, state)
        torch.testing.assert_close(ours, model.detach())


def test_an_outer_optimiser_takes_differences_only() -> None:
    assert LocalSteps(8, outer=Nesterov()).exchanges == {"difference"}


def test_every_rank_meets_and_the_drawn_ones_speak() -> None:
    cadence, spoke = Intermittent(2, probability=0.3, seed=5), 0
    for rank in range(50):
        state = cadence.handle(Joined(rank, 50), cadence.start(), 0.0)
        for step in range(80):
            decision, state = cadence.poll(cadence.handle(StepDone(), state, 0.0), 0.0)
            assert decision.exchange == (step % 2 == 1)
            spoke += decision is Decision.DRAWN
    assert abs(spoke / 2000 - 0.3) < 4 * (0.3 * 0.7 / 2000) ** 0.5


def test_ranks_and_seeds_draw_lots_of_their_own() -> None:
    def lots(rank: int, seed: int) -> list[bool]:
        cadence = Intermittent(probability=0.5, seed=seed)
        state = cadence.handle(Joined(rank, 9), cadence.start(), 0.0)
        drawn = []
        for _ in range(64):
            decision, state = cadence.poll(state, 0.0)
            drawn.append(decision.silent)
        return drawn

    assert len({tuple(lots(rank, seed)) for rank in range(9) for seed in range(3)}) == 27
    assert lots(1, 1) == lots(1, 1)


def test_at_a_stop_all_speak_what_is_left_of_the_round() -> None:
    decisions = list(drive(Intermittent(5, probability=0.01), [StepDone(), Stop(), StepDone(), StepDone()]))
    assert decisions == [Decision.ROUND_OPEN, Decision.LAST_ROUND, Decision.ROUND_OPEN, Decision.ROUND_OPEN]


@given(
    moved=st.lists(st.floats(0.0, 10.0), max_size=14),
    news=st.floats(0.0, 100.0),
    rate=st.floats(0.01, 2.0),
    size=st.integers(1, 9),
)
def test_event_triggered_is_the_rule_of_lag(moved: list[float], news: float, rate: float, size: int) -> None:
    cadence = EventTriggered(Moves(rate))
    state = cadence.handle(Joined(0, size), cadence.start(), 0.0)
    for norm in moved:
        state = cadence.handle(StepDone(norm), state, 0.0)
    decision, state = cadence.poll(cadence.handle(Ready(news), state, 0.0), 0.0)
    threshold = 0.1 * sum(norm**2 for norm in moved[-10:]) / (rate * size) ** 2
    if abs(news**2 - threshold) > 1e-9 * threshold:
        assert decision is (Decision.NEWS if news**2 > threshold else Decision.NO_NEWS)
    assert cadence.poll(state, 0.0)[0] is Decision.UNMEASURED


def test_a_cadence_that_weighs_must_be_told_norms() -> None:
    cadence = EventTriggered(Moves(0.1))
    with pytest.raises(UsageError, match="without its norm"):
        cadence.handle(StepDone(), cadence.start(), 0.0)


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


SENSELESS: list[tuple[Any, str, list[dict[str, Any]]]] = [
    (LocalSteps, "give 1 or more", [{"every": every} for every in (0, -1, 2.5, True, "8")]),
    (LocalSteps, "no outer optimiser", [{"every": 8, "outer": Nesterov}]),
    (Nesterov, "lr is above 0", [{"lr": 0.0}, {"momentum": 1.0}, {"momentum": -0.1}]),
    (Intermittent, "probability above 0", [{"every": 0}, {"probability": 0.0}, {"probability": 1.5}]),
    (ServerPolicy, "either", [{}, {"share": -1.0}, {"share": 0.5, "history": Moves(0.1)}]),
]


@pytest.mark.parametrize(("make", "words", "cases"), SENSELESS)
def test_settings_that_make_no_sense_are_refused(make: Any, words: str, cases: list[dict[str, Any]]) -> None:
    for settings in cases:
        with pytest.raises(UsageError, match=words):
            make(**settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"load": 0}, "at least 1"),
        ({"most_behind": 0}, "at least 1"),
        ({"patience": -1.0}, "patience 0 or more"),
        ({"share": 1.5}, "1 at most"),
        ({"code": "parity"}, "none of uncoded"),
        ({"code": "nested", "share": 0.9}, "no share of their sum"),
        ({"code": "auto", "share": 0.9}, "among exact ones"),
    ],
    ids=repr,
)
def test_shards_that_cannot_be_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ByShards(**settings)
