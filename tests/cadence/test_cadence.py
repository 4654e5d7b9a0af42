"""One table for the stage: every cadence joins by adding a row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import FrozenInstanceError, asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.cadence import Cadence, Decision, Event, EveryStep, LocalSteps, StepDone, Stop
from tweed.errors import UsageError

TABLE: list[Cadence[Any]] = [EveryStep(), LocalSteps(1), LocalSteps(2), LocalSteps(8)]
EVENTS = st.lists(st.sampled_from([StepDone(), StepDone(norm=0.5), Stop()]), max_size=40)

every_cadence = pytest.mark.parametrize("cadence", TABLE, ids=repr)


def drive(cadence: Cadence[Any], events: Iterable[Event]) -> Iterator[Decision]:
    """What `cadence` decides after each event, a second apart."""
    state = cadence.start()
    for now, event in enumerate(events):
        state = cadence.handle(event, state, float(now))
        decision, state = cadence.poll(state, float(now))
        yield decision


@every_cadence
def test_it_keeps_the_contract(cadence: Cadence[Any]) -> None:
    assert isinstance(cadence, Cadence)
    assert cadence.exchanges and cadence.exchanges <= {"gradient", "step", "difference", "model"}
    assert cadence.reason


@every_cadence
def test_a_decision_is_pure(cadence: Cadence[Any]) -> None:
    state = cadence.handle(StepDone(), cadence.start(), 0.0)
    assert cadence.poll(state, 1.0) == cadence.poll(state, 1.0)


@every_cadence
@given(events=EVENTS)
def test_its_state_survives_storage(cadence: Cadence[Any], events: list[Event]) -> None:
    state, decisions = cadence.start(), []
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


def test_every_step_exchanges_before_the_first_step() -> None:
    assert EveryStep().poll(EveryStep().start(), 0.0)[0] is Decision.EVERY_STEP


def test_each_decision_says_what_and_why() -> None:
    for decision in Decision:
        what, why = decision.value.split(": ")
        assert decision.exchange == (what == "exchange") and why


@pytest.mark.parametrize("every", [0, -1, 2.5, True, "8"])
def test_a_round_has_a_whole_number_of_steps(every: Any) -> None:
    with pytest.raises(UsageError, match="give 1 or more"):
        LocalSteps(every)
