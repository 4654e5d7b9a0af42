"""The step of a caller that takes several means: what others get of it, and what it gets of others."""

from __future__ import annotations

import torch
from torch import nn

from tweed.data.sampler import GlobalOrder, Sampler
from tweed.elastic.closure_step import ClosureStep
from tweed.elastic.results import Results, Transferred

AT = Sampler(GlobalOrder(60), 12, step=7, cursor=24)
RESULT = torch.zeros(2)


def made(value: float) -> tuple[nn.Linear, Results, ClosureStep]:
    """A model whose elements are all the value."""
    model = nn.Linear(2, 1)
    kept = Results({"model": model}, [])
    _fill(model, value)
    return model, kept, ClosureStep(kept)


def _fill(model: nn.Module, value: float) -> None:
    with torch.no_grad():
        for param in model.parameters():
            param.fill_(value)


def _value(model: nn.Linear) -> float:
    return model.bias.item()


def test_a_caller_whose_steps_take_one_mean_gives_what_it_has_now() -> None:
    model, _, step = made(1.0)
    step.has(RESULT, AT.where)
    _fill(model, 2.0)
    assert (step.steps, step.is_within) == (1, False)
    other, of_other, taker = made(0.0)
    state = step.state(AT, RESULT)
    assert taker.take_over(state, of_other.given(state, AT)) and not taker.replays
    assert (_value(other), taker.steps) == (2.0, 1)


def test_a_step_that_has_had_no_mean_begins_with_what_others_gave() -> None:
    _, of_giver, giver = made(5.0)
    state = giver.state(AT, RESULT)
    model, _, step = made(1.0)
    step.begin(AT, None)
    assert step.take_over(state, of_giver.given(state, AT)) and _value(model) == 5.0
    other, of_other, taker = made(0.0)
    passed_on = step.state(AT, RESULT)
    assert taker.take_over(passed_on, of_other.given(passed_on, AT)) and _value(other) == 5.0
    _fill(model, 6.0)
    step.revert()
    assert _value(model) == 5.0


def test_who_joins_within_a_step_gets_its_begin_and_the_means_since() -> None:
    model, _, step = made(1.0)
    step.steps = 2
    step.begin(AT, None)
    for number in (1.0, 2.0):
        _fill(model, 1.0 + number)
        step.has(torch.full((2,), number), (8, 36))
    assert step.steps == 3 and step.is_within
    other, of_other, taker = made(0.0)
    state = step.state(AT, RESULT)
    given = of_other.given(state, Sampler(GlobalOrder(60), 12))
    assert given.sampler == AT and given.result is not None  # so that it knows what a mean looks like
    assert taker.take_over(state, given)
    assert (_value(other), taker.steps) == (1.0, 2)
    assert [(mean.tolist(), list(where)) for mean, where in taker.replays] == [
        ([1.0, 1.0], [8, 36]),
        ([2.0, 2.0], [8, 36]),
    ]


def test_what_others_give_within_a_step_waits_for_its_end() -> None:
    model, _, step = made(1.0)
    step.begin(AT, RESULT)
    step.has(RESULT, AT.where)
    _, _, giver = made(5.0)
    giver.steps = 9
    assert not step.take_over(giver.state(AT, RESULT), Transferred(AT, RESULT, []))
    assert (_value(model), step.is_held, step.steps) == (1.0, True, 1)
    assert step.end() and not step.is_held and not step.is_within
    assert (_value(model), step.steps) == (5.0, 9)
    assert not step.end()


def test_a_step_that_does_not_count_is_as_if_it_had_not_begun() -> None:
    model, _, step = made(1.0)
    step.begin(AT, RESULT)
    step.has(RESULT, AT.where)
    _fill(model, 3.0)
    step.revert()
    assert (_value(model), step.steps, step.is_within) == (1.0, 0, False)
