"""ZenoPS: layer by layer beside its two inequalities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn, tensor

from tweed.aggregate import Answer, Arrival, Reason, TrustedSteps, Verdict, ZenoPS, ZenoPSAsync
from tweed.cadence import LocalSteps
from tweed.collective import Hub
from tweed.compress import Spec
from tweed.errors import StrategyError, UsageError
from tweed.exchange.checkpoint import filled, plain
from tweed.hub.live.trusted import Trusted
from tweed.strategy import Strategy

#: Three layers: of three values, of one, and of two.
SIZES = [3, 1, 2]


def judged(
    rule: ZenoPS | ZenoPSAsync, rows: Any, trusted: list[Tensor], masks: Any = None
) -> tuple[Tensor, dict[int, Verdict]]:
    state: Any = rule.start()
    for sender, row in enumerate(rows):
        mask = None if masks is None else masks[sender]
        state = rule.handle(Arrival(torch.as_tensor(row), sender, missing=mask), state, 0.0)
    question, _, state = rule.poll(state, 0.0)
    assert question == TrustedSteps(rule.steps, rule.lr, rule.validators)
    state = rule.handle(Answer(trusted), state, 0.0)
    update, verdicts, _ = rule.poll(state, 0.0)
    return update, {one.sender: one for one in verdicts}


def drawn(seed: int, count: int, validators: int) -> tuple[Tensor, list[Tensor]]:
    made = torch.Generator().manual_seed(seed)
    trusted = [torch.randn(validators, size, generator=made, dtype=torch.float64) for size in SIZES]
    rows = torch.randn(count, sum(SIZES), generator=made, dtype=torch.float64)
    return rows, trusted


@given(
    st.integers(0, 10**6),
    st.integers(1, 7),
    st.integers(1, 3),
    st.floats(-1, 0.5),
    st.floats(0, 3),
    st.booleans(),
)
def test_each_layer_is_the_mean_of_those_that_pass_both_inequalities(
    seed: int, count: int, validators: int, eta: float, rho: float, skips: bool
) -> None:
    rows, trusted = drawn(seed, count, validators)
    sent = np.random.default_rng(seed).random((count, len(SIZES))) < 0.7
    masks = [
        torch.cat([torch.full((size,), not there) for size, there in zip(SIZES, mine, strict=True)])
        for mine in sent.tolist()
    ]
    update, verdicts = judged(ZenoPS(4, 0.1, validators, eta, rho), rows, trusted, masks if skips else None)
    weights = np.zeros(count)
    for at, piece in enumerate(torch.split(update, SIZES)):
        passed = []
        for sender, row in enumerate(rows):
            u, v = torch.split(row, SIZES)[at], trusted[at][sender % validators]
            fine = float(u @ v) > eta * float(v @ v) and float(u @ u) < (1 + rho) * float(v @ v)
            if fine and (sent[sender, at] or not skips):
                passed.append((sender, u))
        expected = sum((u for _, u in passed), start=torch.zeros(SIZES[at])) / max(1, len(passed))
        torch.testing.assert_close(piece, expected.double(), atol=1e-12, rtol=0)
        for sender, _ in passed:
            weights[sender] += SIZES[at] / sum(SIZES) / len(passed)
    assert [verdicts[sender].weight for sender in range(count)] == pytest.approx(weights.tolist())


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 3), st.floats(-0.9, 0.9))
def test_one_by_one_layers_are_cut_to_the_validators_length_and_reversed_where_they_oppose(
    seed: int, count: int, validators: int, eta: float
) -> None:
    rows, trusted = drawn(seed, count, validators)
    rows = rows * torch.logspace(-2, 2, count, dtype=torch.float64)[:, None]
    update, verdicts = judged(ZenoPSAsync(4, 0.1, validators, eta), rows, trusted)
    weights = np.zeros(count)
    for at, piece in enumerate(torch.split(update, SIZES)):
        expected = torch.zeros(SIZES[at], dtype=torch.float64)
        for sender, row in enumerate(rows):
            u, v = torch.split(row, SIZES)[at], trusted[at][sender % validators]
            cut, cosine = min(1.0, float(v.norm() / u.norm())), float(u @ v / u.norm() / v.norm())
            factor = cut * (1.0 if cosine >= eta else cosine)
            expected += factor * u / count
            weights[sender] += factor * SIZES[at] / sum(SIZES) / count
        torch.testing.assert_close(piece, expected, atol=1e-9, rtol=1e-9)
    assert [verdicts[sender].weight for sender in range(count)] == pytest.approx(weights.tolist())


def test_what_opposes_is_reversed_and_never_longer_than_the_validators_steps() -> None:
    trusted = [torch.ones(1, size) for size in SIZES]
    for scale in (-1.0, -6.0, -1e6):
        update, verdicts = judged(ZenoPSAsync(), [torch.full((6,), scale)], trusted)
        torch.testing.assert_close(update, torch.ones(6))
        assert verdicts[0].weight < 0 and verdicts[0].reason is Reason.CLIPPED_TO_STEPS


def test_a_hostile_layer_costs_no_other_layer() -> None:
    trusted = [torch.ones(1, size) for size in SIZES]
    fine = torch.ones(6)
    for bad in (-6.0, math.nan, math.inf, 1e30, 3.0):
        spoilt = fine.clone()
        spoilt[:3] = bad
        update, verdicts = judged(ZenoPS(), [spoilt, fine], trusted)
        assert update.tolist() == [1.0] * 6
        assert verdicts[0] == Verdict(0, 0.25, Reason.LIKE_STEPS) and verdicts[1].weight == 0.75


def test_validators_take_their_steps_anew_now_and_then() -> None:
    rule, asked = ZenoPS(every=3), []
    state: Any = rule.start()
    for _ in range(7):
        state = rule.handle(Arrival(torch.ones(6), 0), state, 0.0)
        found, _, state = rule.poll(state, 0.0)
        asked.append(isinstance(found, TrustedSteps))
        if asked[-1]:
            state = rule.handle(Answer([torch.ones(1, size) for size in SIZES]), state, 0.0)
            found, _, state = rule.poll(state, 0.0)
        state = filled(rule.start(), plain(state))
    assert asked == [True, False, False, True, False, False, True]


def test_a_contribution_that_is_not_of_the_model_is_left_out() -> None:
    trusted = [torch.ones(1, size) for size in SIZES]
    update, verdicts = judged(ZenoPS(), [torch.ones(5), torch.ones(5)], trusted)
    assert update.tolist() == [0.0] * 5 and {one.reason for one in verdicts.values()} == {Reason.SHAPE}


class Net(nn.Module):
    """Its loss on batch k is `|w - k|^2 / 2 + (b + k)^2 / 2`."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.b = nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.ones(1))

    def loss(self, number: int) -> Tensor:
        return (self.w - number).square().sum() / 2 + (self.b + number).square().sum() / 2


def test_validators_step_from_the_model_each_on_samples_of_its_own() -> None:
    net, seen = Net(), []

    def loss(number: int) -> Tensor:
        seen.append(number)
        return net.loss(number)

    trusted = Trusted(list(net.parameters()), loss)
    for first in (0, 6):
        w, b = trusted.answer(TrustedSteps(steps=3, lr=0.1, validators=2))
        for validator in range(2):
            numbers = [first + validator + 1 + 2 * step for step in range(3)]
            assert seen[:3] == numbers
            del seen[:3]
            x, y = 0.0, 1.0
            for number in numbers:
                x, y = x - 0.1 * (x - number), y - 0.1 * (y + number)
            torch.testing.assert_close(w[validator], torch.full((4,), -x))
            torch.testing.assert_close(b[validator], tensor([1 - y]))
        assert net.w.tolist() == [[0.0, 0.0], [0.0, 0.0]] and net.b.tolist() == [1.0]
    assert trusted.questions == 12 and Spec(((2, 2), (1,))).sizes == (w.shape[1], b.shape[1])


def test_a_loss_that_fails_leaves_the_model_as_it_was() -> None:
    net = Net()

    def loss(number: int) -> Tensor:
        if number == 3:
            raise ValueError("no more samples")
        return net.loss(number)

    with pytest.raises(ValueError, match="no more samples"):
        Trusted(list(net.parameters()), loss).answer(TrustedSteps(5, 0.1))
    assert net.b.tolist() == [1.0]


def test_what_is_no_measure_is_refused() -> None:
    hub = Hub(0)
    Strategy("difference", LocalSteps(8), collective=hub, aggregate=ZenoPS())
    Strategy("model", LocalSteps(8), collective=hub, aggregate=ZenoPS())
    Strategy("difference", collective=hub, aggregate=ZenoPS(1))
    with pytest.raises(StrategyError, match="a gradient is no step"):
        Strategy(collective=hub, aggregate=ZenoPS(1))
    with pytest.raises(StrategyError, match=r"how far 8 steps lead is no measure of 4.*steps=4"):
        Strategy("difference", LocalSteps(4), collective=hub, aggregate=ZenoPS())
    settings: Any
    for settings in (
        {"steps": 0},
        {"lr": 0.0},
        {"validators": 0},
        {"eta": math.nan},
        {"rho": -1},
        {"every": 0},
    ):
        with pytest.raises(UsageError, match=next(iter(settings))):
            ZenoPS(**settings)
        if "rho" not in settings:
            with pytest.raises(UsageError, match=next(iter(settings))):
                ZenoPSAsync(**settings)
