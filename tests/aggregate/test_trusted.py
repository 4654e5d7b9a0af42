"""Rules that judge by trusted samples: beside their definitions, on losses that are known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor, zeros

from tweed.aggregate import (
    ARC,
    Answer,
    Arrival,
    Bucketing,
    ByLayers,
    Cache,
    FLTrust,
    InnerProducts,
    Krum,
    Losses,
    Mean,
    NormClipping,
    Question,
    Reason,
    TrustedGradient,
    TrustedSamples,
    TrustedSteps,
    Zeno,
    ZenoPlusPlus,
    ZenoPS,
    ZenoPSAsync,
    conclude,
    of_range,
)
from tweed.cadence import LocalSteps
from tweed.collective import Hub
from tweed.errors import StrategyError, UsageError
from tweed.exchange.checkpoint import filled, plain
from tweed.strategy import Strategy

#: The loss is `|x - GOAL|^2 / 2`, and the model is at zero: its gradient there is `-GOAL`.
GOAL = np.array([3.0, -4.0])


def loss(x: Any) -> float:
    return float(np.square(np.asarray(x) - GOAL).sum() / 2)


def answer(question: Question) -> Any:
    if isinstance(question, TrustedGradient):
        return tensor(-GOAL)
    if isinstance(question, TrustedSteps):
        return [tensor(-GOAL).expand(question.validators, -1)]
    assert isinstance(question, Losses)
    points = [-question.scale * direction.numpy() for direction in question.directions]
    return tensor([loss(np.zeros(2)), *map(loss, points)])


def judged(rule: Any, rows: Any, state: Any = None) -> tuple[Any, dict[int, Any], Any, int]:
    """The update, verdicts by sender, the state after, and how often it asked."""
    state, asked = rule.start() if state is None else state, 0
    for sender, row in enumerate(rows):
        state = rule.handle(Arrival(np.array(row, dtype=np.float64), sender), state, 0.0)
    found, verdicts, state = rule.poll(state, 0.0)
    while isinstance(found, Question):
        asked += 1
        known = of_range(found) if isinstance(found, InnerProducts) else answer(found)
        state = rule.handle(Answer(known), state, 0.0)
        found, verdicts, state = rule.poll(state, 0.0)
    return found, {verdict.sender: verdict for verdict in verdicts}, state, asked


rows = st.lists(st.lists(st.floats(-50, 50), min_size=2, max_size=2), min_size=2, max_size=8)


@given(rows, st.integers(0, 6), st.floats(0, 0.1))
def test_zeno_keeps_those_along_which_the_loss_falls_most(found: Any, f: int, rho: float) -> None:
    f = min(f, len(found) - 1)
    update, verdicts, _, asked = judged(Zeno(f, lr=0.1, rho=rho), found)
    scores = [loss(np.zeros(2)) - loss(-0.1 * np.array(row)) - rho * np.square(row).sum() for row in found]
    kept = sorted(range(len(found)), key=lambda at: -scores[at])[: len(found) - f]
    assert asked == 1
    mine = [at for at, verdict in verdicts.items() if verdict.weight]
    assert sum(scores[at] for at in mine) == pytest.approx(sum(scores[at] for at in kept), abs=1e-6)
    np.testing.assert_allclose(update, np.mean([found[at] for at in mine], axis=0), atol=1e-9)


def test_zeno_holds_where_most_are_hostile() -> None:
    honest = [[-3.0, 4.0], [-2.5, 4.5]]
    update, verdicts, _, _ = judged(Zeno(4, lr=0.1), [*honest, *[[3.0, -4.0]] * 4])
    np.testing.assert_allclose(update, [-2.75, 4.25])
    assert verdicts[0].reason is Reason.DESCENDS and verdicts[5].reason is Reason.ASCENDS
    with pytest.raises(UsageError, match="needs at least 5 contributions, and there are 4"):
        judged(Zeno(4), honest * 2)


def test_zeno_plus_plus_is_its_inequality() -> None:
    rng = np.random.default_rng(0)
    for rho, epsilon in ((0.0, 0.0), (0.05, 0.0), (0.02, 3.0)):
        rule = ZenoPlusPlus(lr=0.1, rho=rho, epsilon=epsilon)
        for _ in range(50):
            g = rng.normal(size=2) * rng.uniform(0.1, 100)
            update, verdicts, _, _ = judged(rule, [g])
            scaled = g * np.linalg.norm(GOAL) / np.linalg.norm(g)
            fine = 0.1 * (-GOAL @ scaled) - rho * scaled @ scaled + 0.1 * epsilon >= 0
            np.testing.assert_allclose(update, scaled if fine else np.zeros(2), atol=1e-9)
            assert (verdicts[0].weight > 0) == fine


@pytest.mark.parametrize("rule", [ZenoPlusPlus(), FLTrust()], ids=repr)
def test_length_buys_nothing(rule: Any) -> None:
    for row in ([-1.0, 2.0], [2.0, 1.0]):
        once, often = (judged(rule, [np.array(row) * scale])[0] for scale in (1.0, 1e6))
        np.testing.assert_allclose(once, often, atol=1e-9)


def test_a_gradient_is_asked_for_now_and_then() -> None:
    rule, state, asked = ZenoPlusPlus(every=3), None, []
    for _ in range(7):
        _, _, state, count = judged(rule, [[-1.0, 1.0]], state)
        asked.append(count)
    assert asked == [1, 0, 0, 1, 0, 0, 1]


def test_a_record_pardons_one_bad_gradient_and_ends_with_many() -> None:
    rule, state, taken = ZenoPlusPlus(record=0.8, rho=0.0), None, []
    for row in [[-3.0, 4.0]] * 5 + [[1.0, -1.0]] * 6:
        _, verdicts, state, _ = judged(rule, [row], state)
        taken.append(verdicts[0].weight > 0)
    assert taken == [True] * 8 + [False] * 3
    again = filled(rule.start(), plain(state))
    assert judged(rule, [[-3.0, 4.0]], again)[1] == judged(rule, [[-3.0, 4.0]], state)[1]


def test_fl_trust_weighs_by_cosines() -> None:
    update, verdicts, _, _ = judged(FLTrust(), [[-6.0, 8.0], [-5.0, 0.0], [3.0, -4.0]])
    np.testing.assert_allclose(update, (1.0 * np.array([-3.0, 4.0]) + 0.6 * np.array([-5.0, 0.0])) / 1.6)
    assert verdicts[2].weight == 0 and verdicts[2].reason is Reason.UNLIKE_TRUSTED


RULES: list[Any] = [
    Zeno(1), ZenoPlusPlus(), ZenoPlusPlus(record=0.5), FLTrust(), ZenoPS(1), ZenoPS(1, validators=2),
    ZenoPSAsync(1, validators=2),
]  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_what_cannot_be_judged_is_left_out(rule: Any) -> None:
    assert isinstance(rule, TrustedSamples) and rule.poll(rule.start(), 0.0) == (None, (), rule.start())
    update, verdicts, _, _ = judged(rule, [[-3.0, 4.0], [math.nan, 1.0], [1.0], [-3.0, 4.0], [math.inf, 0.0]])
    assert np.isfinite(update).all()
    assert [verdicts[sender].reason for sender in (1, 2, 4)] == [
        Reason.NOT_FINITE, Reason.SHAPE, Reason.NOT_FINITE,
    ]  # fmt: skip
    assert all(verdicts[sender].weight == 0 for sender in (1, 2, 4))
    nothing, verdicts, _, _ = judged(rule, [[math.nan, 1.0], [math.nan, 1.0]])
    assert nothing.tolist() == [0.0, 0.0] and {one.weight for one in verdicts.values()} == {0.0}


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_loss_or_gradient_that_says_nothing_believes_nobody_wrongly(rule: Any) -> None:
    state = rule.start()
    for sender in range(3):
        state = rule.handle(Arrival(np.array([1.0, 2.0]), sender), state, 0.0)
    question, _, state = rule.poll(state, 0.0)
    bad: Any = tensor([math.nan] * 4) if isinstance(question, Losses) else zeros(2)
    if isinstance(question, TrustedSteps):
        bad = [bad.expand(question.validators, -1)]
    update, verdicts, _ = rule.poll(rule.handle(Answer(bad), state, 0.0), 0.0)
    assert update.tolist() == [0.0, 0.0] and {one.weight for one in verdicts} == {0.0}


@pytest.mark.parametrize("rule", [NormClipping(Zeno(1)), ARC(FLTrust())], ids=repr)
def test_they_go_behind_what_is_done_before_a_rule(rule: Any) -> None:
    update, _, _, asked = judged(rule, [[-3.0, 4.0], [-3.0, 4.0], [-2.0, 4.0], [300.0, -400.0]])
    assert asked == 2 and update @ -GOAL > 0


def strategy_with(rule: Any) -> Strategy:
    exchange: Any = "difference" if isinstance(rule, ByLayers) else "gradient"
    return Strategy(exchange, collective=Hub(0, when=Cache(3)), aggregate=rule)


@pytest.mark.parametrize("rule", [*RULES, NormClipping(FLTrust())], ids=repr)
def test_without_a_hub_they_are_refused(rule: Any) -> None:
    with pytest.raises(StrategyError, match="judges by the loss on trusted samples"):
        Strategy(aggregate=rule)
    assert strategy_with(rule).trusts_samples
    assert not Strategy(aggregate=Krum()).trusts_samples and not Strategy(aggregate=Mean()).trusts_samples
    state = rule.handle(Arrival(np.array([1.0]), 0), rule.start(), 0.0)
    with pytest.raises(UsageError, match=r"judges by trusted samples|contributions"):
        conclude(rule, state, 0.0)


@pytest.mark.parametrize("rule", [Zeno(0.0), ZenoPlusPlus(), FLTrust(), ZenoPS(1), ZenoPSAsync(1)], ids=repr)
@pytest.mark.parametrize("size", [1e-42, 1e-30, 1e30, 3e38])
def test_neither_tiny_nor_huge_contributions_harm(rule: Any, size: float) -> None:
    rows = [np.float32([-1, 1]), np.float32([-size, size]), np.float32([size, size])]
    state = rule.start()
    for sender, row in enumerate(rows):
        state = rule.handle(Arrival(row, sender), state, 0.0)
    question, _, state = rule.poll(state, 0.0)
    update, verdicts, _ = rule.poll(rule.handle(Answer(answer(question)), state, 0.0), 0.0)
    assert np.isfinite(update).all() and len(verdicts) == 3
    if not isinstance(rule, Zeno):
        assert np.linalg.norm(update) <= (7.001 if isinstance(rule, ZenoPS) else 5.001)


@pytest.mark.parametrize("bad", [[math.inf, 0.0], [math.nan, 1.0], [0.0, 0.0]], ids=repr)
def test_a_trusted_gradient_that_says_nothing_changes_no_record(bad: list[float]) -> None:
    rule = ZenoPlusPlus(every=1, record=0.9)
    _, _, state, _ = judged(rule, [[-3.0, 4.0]])
    records = dict(state.records)
    state = rule.handle(Arrival(np.array([-3.0, 4.0]), 0), state, 0.0)
    question, _, state = rule.poll(state, 0.0)
    assert isinstance(question, TrustedGradient)
    update, verdicts, state = rule.poll(rule.handle(Answer(tensor(bad)), state, 0.0), 0.0)
    assert update.tolist() == [0.0, 0.0] and verdicts[0].weight == 0 and state.records == records
    assert judged(rule, [[-3.0, 4.0]], state)[1][0].weight == 1


def test_of_several_those_that_are_taken_are_averaged() -> None:
    update, _, _, _ = judged(ZenoPlusPlus(), [[-3.0, 4.0], [-30.0, 40.0], [3.0, -4.0], [6.0, -8.0]])
    np.testing.assert_allclose(update, [-3.0, 4.0])


def test_what_rests_on_senders_gradients_or_others_is_refused_where_there_are_none() -> None:
    Bucketing(ZenoPlusPlus())
    with pytest.raises(UsageError, match="goes by senders"):
        Bucketing(ZenoPlusPlus(record=0.9))
    for rule in (ZenoPlusPlus(), NormClipping(FLTrust())):
        with pytest.raises(StrategyError, match="the norm of a gradient"):
            Strategy("difference", LocalSteps(2), collective=Hub(0), aggregate=rule)
    Strategy("difference", LocalSteps(2), collective=Hub(0, when=Cache(3)), aggregate=Zeno(1))
    with pytest.raises(UsageError, match="goes by senders"):
        Bucketing(NormClipping(ZenoPlusPlus(record=0.9)))
    with pytest.raises(StrategyError, match="the worst of several"):
        Strategy(collective=Hub(0), aggregate=Zeno())


def test_settings_that_cannot_be_are_refused() -> None:
    for make in (lambda: Zeno(1, lr=0.0), lambda: Zeno(1, rho=-1.0), lambda: Zeno(1.0)):
        with pytest.raises(UsageError, match="Zeno"):
            make()
    for settings in ({"lr": 0.0}, {"every": 0}, {"record": 1.0}, {"epsilon": math.nan}):
        with pytest.raises(UsageError, match="record from 0"):
            ZenoPlusPlus(**settings)  # type: ignore[arg-type]
