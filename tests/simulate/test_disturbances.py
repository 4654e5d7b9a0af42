"""Disturbances are what their names say, and steps in step take what formulas say where there are any."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.errors import UsageError
from tweed.simulate.disturbances import COMPUTERS, NETWORKS, Computers, Load
from tweed.simulate.in_step import InStep

CALM, WHOLE = Computers(), Load()


@pytest.mark.parametrize(
    ("name", "slow", "factor", "most"), [("C1", 0, 1, 1.1), ("C2", 6, 2, 1.1), ("C3", 3, 4, 2.1)]
)
@pytest.mark.parametrize("seed", range(3))
def test_so_many_are_slow_by_so_much(name: str, slow: int, factor: float, most: float, seed: int) -> None:
    taken = [
        [COMPUTERS[name].steps(seed, 30, member, task, 0.0) for task in range(200)] for member in range(30)
    ]
    lowest = [min(mine) for mine in taken]
    assert sum(low >= factor for low in lowest) == (slow if factor > 1 else 30)
    assert all(
        max(mine) <= most * (factor if low >= factor else 1) for mine, low in zip(taken, lowest, strict=True)
    )
    assert statistics.fmean(min(taken, key=min)) == pytest.approx((1 + most) / 2, rel=0.03)


def test_others_are_slow_after_a_while() -> None:
    def slow(now: float) -> set[int]:
        return {member for member in range(30) if COMPUTERS["C3"].steps(1, 30, member, 0, now) >= 4}

    assert slow(0.0) == slow(59.9) != slow(60.0)
    assert {len(slow(60.0 * epoch)) for epoch in range(20)} == {3}


@given(st.integers(0, 2**32), st.integers(-1, 40), st.floats(0, 1e4), st.sampled_from([0.1, 0.3, 5.0, 7.7]))
def test_a_share_holds_until_it_says(seed: int, host: int, now: float, redrawn_s: float) -> None:
    load = Load(((1.0, 0.5), (0.5, 0.3), (0.25, 0.2)), redrawn_s)
    share, until = load.share(seed, host, now)
    assert share in (1.0, 0.5, 0.25) and now < until <= now + 1.001 * redrawn_s
    middle = (now + until) / 2
    assert middle == until or load.share(seed, host, middle) == (share, until)  # there may be nothing between


def test_shares_are_as_probable_as_they_say() -> None:
    found = [
        NETWORKS["N-dynamic"].share(0, host, 5.0 * epoch)[0] for host in range(-1, 30) for epoch in range(300)
    ]
    assert [found.count(share) / len(found) for share in (1.0, 0.5, 0.25)] == pytest.approx(
        [0.5, 0.3, 0.2], abs=0.02
    )
    static = [NETWORKS["N-static"].share(seed, host, 0.0) for seed in range(300) for host in range(30)]
    assert static.count((0.4, math.inf)) / len(static) == pytest.approx(0.3, abs=0.02)
    assert {NETWORKS["N-static"].share(seed, -1, 9.0) for seed in range(50)} == {(1.0, math.inf)}


def test_what_cannot_be_is_refused() -> None:
    for wrong in ({"slow": 1.5}, {"factor": 0.5}, {"redrawn_s": 0.0}, {"pauses": (-0.1,)}):
        with pytest.raises(UsageError):
            Computers(**wrong)  # type: ignore[arg-type]
    for shares in (((1.0, 0.5),), ((0.0, 1.0),), ((1.5, 1.0),)):
        with pytest.raises(UsageError):
            Load(shares)
    with pytest.raises(UsageError, match="spare"):
        InStep(CALM, WHOLE, 4, 0.1, 0, spare=3)


@pytest.mark.parametrize("members", [2, 5, 30])
def test_a_ring_is_as_quick_as_its_slowest_host(members: int) -> None:
    one = 2 * (members - 1) / members
    assert InStep(CALM, WHOLE, members, 0.1, 0).take(0, 3.0).ends_s == pytest.approx(4.0 + 0.1 * one)
    half = Load(((1.0, 0.5), (0.5, 0.5)))
    assert InStep(CALM, half, members, 0.1, 5).take(0, 0.0).ends_s == pytest.approx(1.0 + 0.2 * one)


def test_a_tree_of_pieces_takes_a_little_more() -> None:
    tree = InStep(CALM, WHOLE, 30, 1.0, 0, "double_binary_tree").take(0, 0.0).ends_s
    assert 1 + 2 * 29 / 30 < tree < 1 + 3.0


def test_a_change_under_way_counts_from_then_on() -> None:
    class Halves(Load):
        def share(self, seed: int, host: int, now: float) -> tuple[float, float]:
            return (1.0, 2.0) if now < 2.0 else (0.5, math.inf)

    # A ring of two moves one transfer: half of it by second 2, the rest at half the rate.
    assert InStep(CALM, Halves(), 2, 2.0, 0).take(0, 0.0).ends_s == pytest.approx(1 + 1 + 2)


@pytest.mark.parametrize("seed", range(3))
def test_who_is_last_to_be_ready_is_spared(seed: int) -> None:
    all_wait = InStep(COMPUTERS["C3"], WHOLE, 30, 0.02, seed)
    some = InStep(COMPUTERS["C3"], WHOLE, 30, 0.02, seed, spare=3)
    slow = {member for member in range(30) if COMPUTERS["C3"].steps(seed, 30, member, 7, 0.0) >= 4}
    assert set(some.take(7, 0.0).members) == set(range(30)) - slow
    assert some.take(7, 0.0).ends_s < 2.2 and all_wait.take(7, 0.0).ends_s > 4.0
