"""Clipping and noise: what it lets through, how it is drawn, and how private it is by an accountant."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special, stats

from tests.compress.table import gaussian
from tweed.compress import ClippedNoise
from tweed.errors import UsageError
from tweed.rng import source


def forbidden(count: int) -> bytes:
    raise AssertionError("no noise is asked for")


@given(st.floats(1e-20, 1e20), st.floats(1e-6, 1e6), st.integers(1, 50))
def test_without_noise_it_cuts_the_length_and_keeps_the_direction(
    clip: float, times: float, numel: int
) -> None:
    value = (gaussian(seed=numel)[:numel] * clip * times).float()
    kept = value.clone()
    found = ClippedNoise(clip, 0.0).randomised(value, forbidden)
    length = float(value.double().norm())
    assert torch.equal(value, kept) and float(found.double().norm()) <= clip * (1 + 1e-6)
    expected = value.double() * min(1.0, clip / length if length else 1.0)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-44)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_that_a_value_was_not_finite_is_not_told(bad: float) -> None:
    part = ClippedNoise(1.0, 2.0)
    zero, spoilt = torch.zeros(100), torch.zeros(100)
    spoilt[7] = bad
    assert torch.equal(part.randomised(zero, source(1)), part.randomised(spoilt, source(1)))


@pytest.mark.parametrize("deviation", [1e-6, 1.0, 3e4])
def test_noise_is_normal_independent_and_of_the_deviation_that_is_asked_for(deviation: float) -> None:
    part, count = ClippedNoise(2.0, deviation / 2.0), 40_001
    noise = part.randomised(torch.zeros(count), source(3)).double() / deviation
    assert stats.kstest(noise.numpy(), "norm").pvalue > 1e-3
    assert abs(float(noise.mean())) < 5 / count**0.5
    pairs = torch.stack([noise[: count // 2], noise[count // 2 + 1 :]])  # of one draw each
    assert abs(float(torch.corrcoef(pairs)[0, 1])) < 5 / (count / 2) ** 0.5
    again = part.randomised(torch.zeros(count), source(4)).double() / deviation
    assert abs(float(torch.corrcoef(torch.stack([noise, again]))[0, 1])) < 5 / count**0.5


def test_low_bits_tell_nothing_of_the_value() -> None:
    """All that is sent lies on one grid, whatever was below it."""
    part = ClippedNoise(1.0, 1.0)
    for value in (torch.zeros(1000), torch.full((1000,), 1e-3 / 7)):
        sent = part.randomised(value, source(5)).double() * 2.0**19
        assert torch.equal(sent, sent.round()) and bool((sent % 2 == 1).any())


def test_the_same_bytes_are_never_given_twice() -> None:
    give, other = source(1, 2), source(1, 3)
    drawn = [give(16) for _ in range(50)] + [other(16) for _ in range(50)]
    again = source(1, 2)
    assert len(set(drawn)) == 100 and [again(16) for _ in range(50)] == drawn[:50]
    assert [len(give(count)) for count in (0, 1, 7, 4000)] == [0, 1, 7, 4000]


def exact(noise: float, contributions: int, delta: float) -> float:
    """Of so many normal mechanisms with sensitivity 2, by the formula for one with all their noise (Balle and
    Wang, 2018, theorem 8)."""
    mu = 2 * contributions**0.5 / noise

    def beyond(epsilon: float) -> float:
        log = special.log_ndtr(-epsilon / mu - mu / 2) + epsilon
        return float(stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(min(log, 700)) - delta)

    return float(optimize.brentq(beyond, 0.0, mu * mu + 20 * mu + 20))


@pytest.mark.parametrize("noise", [0.5, 4.0, 60.0, 1000.0])
@pytest.mark.parametrize("contributions", [1, 50, 1000])
def test_epsilon_is_that_of_the_exact_formula_and_never_below(noise: float, contributions: int) -> None:
    pytest.importorskip("dp_accounting", reason="the extra privacy is not installed")
    found, true = ClippedNoise(3.0, noise).epsilon(contributions), exact(noise, contributions, 1e-5)
    assert true - 1e-6 <= found <= 1.2 * true + 0.01


def test_epsilon_of_nothing_and_without_noise() -> None:
    assert ClippedNoise(1.0).epsilon(0) == 0 and ClippedNoise(1.0, 0.0).epsilon(1) == math.inf


def test_without_the_accountant_an_error_names_what_to_install(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(UsageError, match=r"pip install .*\[privacy\]'"):
        ClippedNoise(1.0).epsilon(3)


@pytest.mark.parametrize(
    "settings", [(0.0, 1.0), (math.nan, 1.0), (1.0, -1.0), (math.inf, 1.0), (1.0, math.nan)]
)
def test_settings_that_cannot_be_are_refused(settings: tuple[float, float]) -> None:
    with pytest.raises(UsageError, match="clip is to be above 0"):
        ClippedNoise(*settings)
