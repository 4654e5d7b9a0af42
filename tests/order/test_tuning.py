"""Pieces and window are tuned while steps go on."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.errors import UsageError
from tweed.order import CreditTuner
from tweed.order.tuning import Setting, Trials

TUNER = CreditTuner(steps=3)


def step_s(setting: Setting, piece: float, window: float) -> float:
    """A time with one best setting, and the worse the further away."""
    return 1 + abs(math.log2(setting.piece_bytes / piece)) + abs(math.log2(setting.window_bytes / window))


def tuned(state: Trials, piece: float, window: float, steps: int = 600) -> Trials:
    for _ in range(steps):
        state = TUNER.handle(step_s(state.setting, piece, window), state)
    return state


powers = st.integers(-4, 3)


@given(powers, powers, powers, powers)
def test_it_finds_the_best_and_finds_it_again_when_the_link_changes(
    piece: int, window: int, other_piece: int, other_window: int
) -> None:
    state = TUNER.start()
    for exponents in ((piece, window), (other_piece, other_window)):
        best = 2.0 ** exponents[0] * 4e6, 2.0 ** max(exponents) * 16e6
        state = tuned(state, *best)
        assert step_s(state.setting, *best) == pytest.approx(1.0, abs=1e-4)


def test_one_slow_step_does_not_mislead() -> None:
    state = tuned(TUNER.start(), 1e6, 16e6)
    settled = state.setting
    for place in range(300):
        state = TUNER.handle(step_s(state.setting, 1e6, 16e6) * (9 if place % 3 == 0 else 1), state)
        assert state.setting == settled


def test_bounds_are_kept() -> None:
    state = TUNER.start()
    for _ in range(200):
        state = TUNER.handle(float(state.setting.piece_bytes + state.setting.window_bytes), state)
        assert TUNER.least_bytes <= state.setting.piece_bytes <= state.setting.window_bytes
    assert state.setting == Setting(62_500, 62_500)


@pytest.mark.parametrize("settings", [{"steps": 0}, {"first": Setting(9, 8), "least_bytes": 1}])
def test_what_cannot_be_is_refused(settings: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        CreditTuner(**settings)  # type: ignore[arg-type]
