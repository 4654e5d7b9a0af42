"""Subchannels, powers and cuts: water-filling, monotone descent, and beside exhaustive search."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.errors import UsageError
from tweed.exchange.allocation import Allocation, powered, spread_evenly, water_filled
from tweed.workloads.split.latency import Profile, Setting, at_random, descended, drop

PROFILE = Profile((1e6, 5e6, 20e6), 60e6, (4e5, 2e5, 5e4), (3e4, 3e5, 3e6))


def setting(seed: int, clients: int = 5, channels: int = 20, phi: float = 0.5) -> Setting:
    speeds = tuple(np.random.default_rng([seed, 2]).uniform(1e9, 1.6e9, clients).tolist())
    return Setting(PROFILE, drop(seed, clients, channels), speeds, 5e10, 64, phi)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=8), st.floats(0, 50))
def test_water_reaches_one_level(quality: list[float], power: float) -> None:
    ratio = np.array(quality)
    spread = water_filled(ratio, power)
    assert spread.sum() == pytest.approx(power, abs=1e-9) and (spread >= 0).all()
    if power > 1e-6:
        level = (spread + 1 / ratio)[spread > 0]
        assert np.ptp(level) < 1e-6 and (1 / ratio[spread == 0] >= level.max() - 1e-6).all()


@pytest.mark.parametrize("seed", range(5))
def test_a_round_never_gets_longer(seed: int) -> None:
    found = descended(setting(seed))
    assert all(late <= early for early, late in itertools.pairwise(found.rounds_s))
    assert sum(found.allocation.powers) <= 0.6 * (1 + 1e-9) and max(found.allocation.powers) <= 0.2 * (
        1 + 1e-9
    )
    assert {*found.allocation.owners} == {*range(5)}


@pytest.mark.parametrize("seed", range(3))
def test_it_is_shorter_than_even_and_random_allocations_and_than_each_fixed_cut(seed: int) -> None:
    mine = setting(seed)
    best = descended(mine).rounds_s[-1]
    for other in (spread_evenly(mine.radio), at_random(mine.radio, seed)):
        assert best <= min(mine.round_s(cut, other) for cut in range(3))


@pytest.mark.parametrize("seed", range(3))
def test_small_cases_come_near_the_best_of_all(seed: int) -> None:
    mine = setting(seed, clients=2, channels=5)
    rounds = []
    for owners in itertools.product(range(2), repeat=5):
        if len({*owners}) == 2:
            even = Allocation(owners, spread_evenly(mine.radio).powers)
            for cut in range(3):
                full = powered(mine.radio, even, lambda *which, cut=cut: mine.seconds(cut, *which))  # type: ignore[misc]
                rounds.append(mine.round_s(cut, full))
    assert descended(mine).rounds_s[-1] <= 1.03 * min(rounds)


def test_more_aggregated_rows_are_shorter_rounds_and_others_are_longer() -> None:
    for clients in (5, 10):
        mine = [setting(1, clients, phi=phi) for phi in (1.0, 0.5, 0.0)]
        chosen = descended(mine[2])
        rounds = [one.round_s(chosen.cut, chosen.allocation) for one in mine]
        rounds += [mine[2].federated_s(chosen.cut, chosen.allocation), mine[2].sequential_s(chosen.cut)]
        assert rounds[:4] == sorted(rounds[:4])


def test_each_client_needs_a_subchannel() -> None:
    with pytest.raises(UsageError, match="5 clients cannot share 4 subchannels"):
        spread_evenly(drop(0, 5, 4))
