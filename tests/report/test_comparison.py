"""Parts of reports: values in words, and goals."""

from __future__ import annotations

import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from tweed.report import comparison


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([1, 2, 3, 4], 0.5, 2), ([1, 2, 3, 4], 0.99, 4), ([5], 0.5, 5), (list(range(1, 101)), 0.99, 99)],
)
def test_quantiles_are_values_that_were_measured(values: list[float], share: float, expected: float) -> None:
    assert comparison.quantile(values[::-1], share) == expected


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (1234.5, "1,234"), (12.34, "12.3"), (1.234, "1.23"), (0.01234, "0.0123")]
)
def test_figures_have_three_digits(value: float | None, text: str) -> None:
    assert comparison.number(value) == text


def test_goals_have_a_verdict_and_the_day_since_when_they_stand() -> None:
    near = [0.1, 0.2, 0.1, 0.2, 0.1]
    found = [
        comparison.of_points("a", near, 0.0),
        comparison.of_points("b", near, 0.15),
        comparison.of_points("c", near, 0.3),
        comparison.of_points("d", near[:4], 0.0),
        comparison.of_points("e", [], -0.5),
        comparison.of_ratios("f", [2.0, 2.2, 2.1, 2.0, 2.1], 1.9, " (x)"),
    ]
    rows = [
        ["a", "+0.14 points (+0.07 to +0.21; 5 seeds)", "met"],
        ["b", "+0.14 points (+0.07 to +0.21; 5 seeds)", "no difference"],
        ["c", "+0.14 points (+0.07 to +0.21; 5 seeds)", "missed"],
        ["d", "+0.15 points (+0.06 to +0.24; 4 seeds)", "–"],
        ["e", "–", "–"],
        ["f", "2.08× (1.98 to 2.18; 5 seeds) (x)", "met"],
    ]
    table = comparison.goals(found, fixed="2026-11-23")
    assert table.rows == rows and table.head[0] == "goal (fixed 2026-11-23)"


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=12), st.floats(-100, 100))
def test_a_verdict_needs_five_seeds_and_an_interval_on_one_side(by_seed: list[float], least: float) -> None:
    verdict, (low, high) = comparison.judge(by_seed, least), comparison.interval(by_seed)
    assert (verdict is None) == (len(by_seed) < comparison.SEEDS)
    assert low <= high
    if verdict is not None:
        contains = low <= least <= high
        assert verdict == ("no difference" if contains else low > least)


@given(st.lists(st.floats(-9, 9), min_size=5, max_size=9), st.floats(0, 9), st.floats(0, 9))
def test_more_is_never_judged_worse(by_seed: list[float], least: float, more: float) -> None:
    rank = {False: 0, "no difference": 1, True: 2}
    assert rank[comparison.judge(by_seed, least + more)] <= rank[comparison.judge(by_seed, least)]


def test_the_interval_is_students() -> None:
    expected = scipy.stats.ttest_1samp([1.0, 2.0, 4.0, 3.0, 5.5], 0.0).confidence_interval(0.95)
    assert comparison.interval([1.0, 2.0, 4.0, 3.0, 5.5]) == pytest.approx(tuple(expected))
    assert comparison.interval([2.0]) == (2.0, 2.0)


def test_pages_show_the_rule_of_the_code() -> None:
    assert comparison.rule().startswith("A goal over seeds is met where the 95 % confidence interval")
    assert comparison.rule().endswith("with fewer seeds there is none.") and "  " not in comparison.rule()


def test_a_mean_stands_with_half_of_its_range() -> None:
    assert comparison.spread([90.0, 91.0, 95.0]) == "92.00 (± 2.50)"
    assert comparison.spread([90.0], 1, ", lr 0.1") == "90.0 (± 0.0, lr 0.1)"
    assert comparison.with_range([0.5, -1.0]) == "-0.25 (-1.00 to +0.50)"
