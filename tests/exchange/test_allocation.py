"""Subchannels, power and cut of clients that share a band."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tweed.errors import UsageError
from tweed.exchange.allocation import Demand, Radio, allocate, fastest_power, greedy, least_power
from tweed.workloads.split.latency import Layers, Setting, drop

MODEL = nn.Sequential(
    nn.Linear(784, 64),
    nn.ReLU(),
    nn.Linear(64, 256),
    nn.ReLU(),
    nn.Linear(256, 256),
    nn.ReLU(),
    nn.Linear(256, 10),
)
LAYERS = Layers.of(MODEL, torch.zeros(1, 784))


def demands(setting: Setting, phi: float = 0.5) -> list[Demand]:
    return [setting.demand(cut, phi) for cut in setting.layers.cuts()]


@given(seed=st.integers(0, 10**6), clients=st.integers(1, 5), more=st.integers(0, 6))
@settings(max_examples=25)
def test_no_block_makes_a_round_longer_and_all_limits_hold(seed: int, clients: int, more: int) -> None:
    setting = drop(LAYERS, clients, seed, subchannels=clients + more)
    found = allocate(setting.radio, demands(setting))
    assert all(later <= earlier for earlier, later in zip(found.history, found.history[1:], strict=False))
    assert set(found.owners.tolist()) == set(range(clients))
    used = np.bincount(found.owners, found.power_w, clients)
    assert (used <= setting.radio.client_w * (1 + 1e-9)).all()
    assert used.sum() <= setting.radio.total_w * (1 + 1e-9)
    again = demands(setting)[found.choice].seconds(setting.radio, found.owners, found.power_w)
    assert again == found.seconds == found.history[-1]


@pytest.mark.parametrize("seed", range(4))
def test_it_is_near_the_best_of_all_on_tiny_cases(seed: int) -> None:
    setting = drop(LAYERS, 2, seed, subchannels=5)
    radio, asked = setting.radio, demands(setting)[::3]
    every = [np.array(one) for one in product(range(2), repeat=5) if len(set(one)) == 2]
    best = min(
        one.seconds(radio, owners, fastest_power(radio, one, owners)) for one in asked for owners in every
    )
    assert best * (1 - 1e-9) <= allocate(radio, asked).seconds <= 1.05 * best


@pytest.mark.parametrize("seed", range(5))
def test_it_is_quicker_than_random_and_uniform_allocations(seed: int) -> None:
    setting = drop(LAYERS, 4, seed, subchannels=12)
    radio, asked = setting.radio, demands(setting)
    found = allocate(radio, asked).seconds
    owners = np.arange(12) % 4
    for other in (owners, np.random.default_rng(seed).permutation(owners)):
        assert found < min(one.seconds(radio, other, radio.equal_power(other)) for one in asked)


@given(seed=st.integers(0, 10**6), rate=st.floats(1e3, 1e8))
def test_water_filling_sends_the_rate_at_the_least_power(seed: int, rate: float) -> None:
    random = np.random.default_rng(seed)
    radio = Radio(random.uniform(0.01, 1, (1, 4)), 1e6, 0.1, 1.0, 1.0, 1.0)
    owners = np.zeros(4, dtype=np.int64)
    power = least_power(radio, owners, np.array([rate]))
    assert radio.up_rates(owners, power)[0] == pytest.approx(rate, rel=1e-6)
    level = power + radio.noise_w / radio.gains[0]  # the same wherever there is power, less than elsewhere
    assert level[power > 0].max() == pytest.approx(level.min(), rel=1e-9)


def test_the_straggler_gets_more() -> None:
    radio = Radio(np.array([[1.0] * 8, [0.01] * 8]), 1e6, 0.1, 1.0, 2.0, 1.0)
    zero, one = np.zeros(2), np.full(2, 1e6)
    asked = Demand(zero, one, 0.0, 0.0, one, zero)
    for owners in (greedy(radio, asked), allocate(radio, [asked]).owners):
        assert np.bincount(owners).tolist()[1] > 4


def test_radios_that_cannot_be_are_refused() -> None:
    for gains in (np.ones((3, 2)), np.ones(3), np.zeros((1, 2))):
        with pytest.raises(UsageError):
            Radio(gains, 1e6, 0.1, 1.0, 1.0, 1.0)
    with pytest.raises(UsageError, match="one demand"):
        allocate(Radio(np.ones((1, 2)), 1e6, 0.1, 1.0, 1.0, 1.0), [])


def test_layers_are_counted_and_cut_where_both_sides_compute() -> None:
    assert LAYERS.flops[0] == 2 * 784 * 64 and LAYERS.weights[0] == 784 * 64 + 64
    assert LAYERS.values.tolist() == [64, 64, 256, 256, 256, 256, 10] and LAYERS.cuts() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("clients", [5, 10])
def test_rounds_are_quicker_the_more_is_aggregated(clients: int) -> None:
    setting = drop(LAYERS, clients, 0, batch=32)
    took = [setting.epsl_s(phi) for phi in (1.0, 0.5, 0.0)]
    assert took == sorted(took) and took[-1] <= setting.federated_s() < setting.sequential_s()


@given(phi=st.floats(0, 1), clients=st.integers(2, 8))
@settings(max_examples=20)
def test_what_a_round_sends_down_are_the_rows_of_the_algorithm(phi: float, clients: int) -> None:
    demand = drop(LAYERS, clients, 1, batch=20).demand(1, phi)
    rows = (demand.broadcast_bits + demand.down_bits.sum()) / (32 * 64)
    m = int(np.ceil(20 * phi - 1e-9))
    assert rows == pytest.approx(m + clients * (20 - m))
