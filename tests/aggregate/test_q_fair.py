"""q-fair weights beside the paper's formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.aggregate import Arrival, Mean, QFair, Reason, Verdict
from tweed.collective import Hub
from tweed.compress import ClippedNoise
from tweed.errors import StrategyError, UsageError
from tweed.strategy import Strategy

losses = st.floats(1e-3, 1e3)


def judged(rule: Any, rows: Any, given: Any) -> tuple[Any, dict[int, Verdict]]:
    state = rule.start()
    for sender, (row, loss) in enumerate(zip(rows, given, strict=True)):
        state = rule.handle(Arrival(np.asarray(row, dtype=np.float64), sender, loss=loss), state, 0.0)
    found, verdicts, after = rule.poll(state, 0.0)
    assert after == rule.start()
    return found, {one.sender: one for one in verdicts}


@given(st.lists(losses, min_size=1, max_size=6), st.floats(0.1, 4), st.floats(0.01, 10), st.integers(0, 999))
def test_it_is_the_papers_step(found: list[float], q: float, lr: float, seed: int) -> None:
    """q-FedAvg: w - w' is the sum of F^q L d over that of q F^(q-1) |L d|^2 + L F^q, with L = 1 / lr."""
    d, f, big = np.random.default_rng(seed).normal(size=(len(found), 3)), np.array(found), 1 / lr
    update, verdicts = judged(QFair(q, big), d, found)
    top = (f[:, None] ** q * big * d).sum(0)
    under = (q * f ** (q - 1) * np.square(big * d).sum(1) + big * f**q).sum()
    np.testing.assert_allclose(update, top / under, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose([verdicts[at].weight for at in range(len(f))], big * f**q / under, rtol=1e-9)
    gradients, _ = judged(QFair(q, lr), d, found)  # q-FedSGD, times L: the hub's optimizer has the rate
    under = (q * f ** (q - 1) * np.square(d).sum(1) + big * f**q).sum()
    np.testing.assert_allclose(gradients, big * (f[:, None] ** q * d).sum(0) / under, rtol=1e-9, atol=1e-12)


def test_without_fairness_it_is_the_mean_and_needs_no_loss() -> None:
    rows = [[1.0, 2.0], [3.0, -4.0], [5.0, 0.5]]
    found, _ = judged(QFair(0.0), rows, [math.nan, 0.0, 2.0])
    np.testing.assert_allclose(found, judged(Mean(), rows, [0.0] * 3)[0])


def test_who_is_worst_off_counts_most() -> None:
    _, verdicts = judged(QFair(2.0, 0.0), [[1.0], [1.0], [1.0]], [1.0, 2.0, 3.0])
    assert [verdicts[at].weight for at in range(3)] == pytest.approx([1 / 14, 4 / 14, 9 / 14])


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_without_a_loss_it_is_left_out(bad: float) -> None:
    found, verdicts = judged(QFair(1.0, 0.0), [[1.0], [3.0]], [bad, 2.0])
    assert found.tolist() == [3.0] and verdicts[0] == Verdict(0, 0.0, Reason.NO_LOSS)
    nothing, verdicts = judged(QFair(), [[1.0], [3.0]], [bad, bad])
    assert nothing.tolist() == [0.0] and {one.reason for one in verdicts.values()} == {Reason.NO_LOSS}


def test_what_cannot_be_added_up_is_left_out_and_absurd_losses_give_numbers() -> None:
    rows: Any = [[1.0, 1.0], [math.nan, 1.0], [1.0], [3.0, 3.0]]
    found, verdicts = judged(QFair(1.0, 0.0), rows, [1.0, 1.0, 1.0, 1.0])
    assert found.tolist() == [2.0, 2.0]
    assert (verdicts[1].reason, verdicts[2].reason) == (Reason.NOT_FINITE, Reason.SHAPE)
    for q in (0.1, 1.0, 5.0):
        found, verdicts = judged(QFair(q), [[1e30, 1.0], [1.0, -2e20]], [1e-300, 1e300])
        assert np.isfinite(found).all() and all(0 <= one.weight <= 1 for one in verdicts.values())


def test_it_needs_a_hub_and_no_privacy() -> None:
    Strategy(collective=Hub(0), aggregate=QFair())
    with pytest.raises(StrategyError, match="which only a hub learns"):
        Strategy(aggregate=QFair())
    with pytest.raises(StrategyError, match="leave workers without noise"):
        Strategy(collective=Hub(0, privacy=ClippedNoise(1.0)), aggregate=QFair())
    for settings in ((-1.0, 1.0), (math.nan, 1.0), (1.0, -1.0)):
        with pytest.raises(UsageError, match="q and rho"):
            QFair(*settings)
