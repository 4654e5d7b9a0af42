"""The bill of serverless functions: by hand where it is simple, and what must hold of any."""

from __future__ import annotations

import io
import math
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.blocks import ROOT, blocks
from tweed.errors import UsageError
from tweed.workloads.double_ml.bill import Platform, coarse, frontier, simulate_bill

FULL = Platform(memory_mb=1769, cold_start_s=0.0)
GIGABYTE = Platform(memory_mb=1024, core_mb=1024, cold_start_s=0.0)
TIMES = st.lists(st.floats(0.001, 100), max_size=40)


def test_the_table_of_the_page_is_what_its_example_prints() -> None:
    (example,) = (one for one in blocks() if one.page == "docs/double_ml.md" and "frontier" in one.text)
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(example.text, {})
    assert len(printed.getvalue().splitlines()) == 12
    assert printed.getvalue() in (ROOT / example.page).read_text()


def test_a_bill_by_hand() -> None:
    bill = simulate_bill([3.0, 1.0, 2.0, 2.0], replace(GIGABYTE, concurrency=2))
    assert bill.seconds == 5.0  # 3 and 2 on one instance, 1 and 2 on the other
    assert (bill.calls, bill.cold_starts) == (4, 2)
    assert bill.gb_seconds == pytest.approx(8.0)
    assert bill.usd == pytest.approx(8 * 1.66667e-5 + 4 * 2e-7)
    assert simulate_bill([], GIGABYTE) == (0.0, 0, 0.0, 0, 0.0)


def test_durations_are_billed_in_whole_units_and_no_more() -> None:
    tenths = replace(GIGABYTE, unit_s=0.1)
    assert simulate_bill([0.31, 0.3], tenths).gb_seconds == pytest.approx(0.7)


def test_less_memory_than_a_core_s_takes_longer_and_more_is_only_dearer() -> None:
    half, full, double = (
        simulate_bill([10.0], Platform(memory_mb=mb, core_mb=2048)) for mb in (1024, 2048, 4096)
    )
    start = double.seconds - 10.0
    assert half.seconds == pytest.approx(20.0 + start) and full.seconds == double.seconds
    assert double.usd > full.usd


def test_coarse_tasks_have_fewer_cold_starts_and_take_longer() -> None:
    fine = [1.0] * 100
    many = Platform(memory_mb=1769)
    quick, slow = simulate_bill(fine, many), simulate_bill(coarse(fine, 5), many)
    assert (quick.cold_starts, slow.cold_starts) == (100, 20)
    assert slow.seconds > quick.seconds and slow.usd < quick.usd


def test_cold_starts_are_drawn_by_the_seed_and_may_be_free() -> None:
    assert simulate_bill([1.0], Platform(), seed=1) == simulate_bill([1.0], Platform(), seed=1)
    assert simulate_bill([1.0], Platform(), seed=1) != simulate_bill([1.0], Platform(), seed=2)
    free = simulate_bill([1.0] * 9, Platform(memory_mb=1769, bills_cold_starts=False))
    assert free.gb_seconds == pytest.approx(9 * 1769 / 1024) and free.seconds > 1.0
    mean = sum(simulate_bill([0.0], Platform(), seed).seconds for seed in range(2000)) / 2000
    assert mean == pytest.approx(2.0, rel=0.05)


@given(work_s=TIMES, cap=st.integers(1, 50), seed=st.integers(0, 99))
def test_any_bill_is_within_bounds(work_s: list[float], cap: int, seed: int) -> None:
    bill = simulate_bill(work_s, replace(FULL, concurrency=cap, cold_start_s=1.0), seed)
    assert bill.cold_starts == min(cap, len(work_s))
    assert bill.seconds >= max([*work_s, math.fsum(work_s) / cap])
    assert bill.gb_seconds * 1024 / 1769 >= math.fsum(work_s) - 1e-6
    if cap >= len(work_s) > 0:
        alone = [
            simulate_bill(work_s[: count + 1], replace(FULL, cold_start_s=1.0), seed)
            for count in range(len(work_s))
        ]
        assert bill.seconds == max(one.seconds for one in alone)


@given(work_s=TIMES.filter(bool), seed=st.integers(0, 9))
def test_no_platform_beats_one_of_the_frontier(work_s: list[float], seed: int) -> None:
    platforms = [
        Platform(memory_mb=mb, concurrency=cap) for mb in (256, 1024, 1769, 4096) for cap in (1, 4, 64)
    ]
    found = frontier(work_s, platforms, seed)
    assert found and [point.bill.seconds for point in found] == sorted(point.bill.seconds for point in found)
    for platform in platforms:
        other = simulate_bill(work_s, platform, seed)
        assert any(point.bill.seconds <= other.seconds and point.bill.usd <= other.usd for point in found)
        for _, bill in found:
            assert not (other.seconds <= bill.seconds and other.usd < bill.usd)


@pytest.mark.parametrize(
    "change", [{"memory_mb": 0}, {"concurrency": 0}, {"unit_s": 0.0}, {"cold_start_s": -1.0}]
)
def test_platforms_that_cannot_be_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="cannot be"):
        replace(FULL, **change)


def test_times_that_cannot_be_are_refused() -> None:
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(UsageError, match="task 1 takes"):
            simulate_bill([1.0, bad], FULL)
    with pytest.raises(UsageError, match="7 fine tasks are no multiple of 5 folds"):
        coarse([1.0] * 7, 5)
