"""Parts of reports: values in words, and goals."""

from __future__ import annotations

import pytest

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


def test_goals_are_met_missed_or_not_measured() -> None:
    found = [
        comparison.of_points("a", [0.4, -1.0], -0.5),
        comparison.of_points("b", [-0.6], -0.5),
        comparison.of_points("c", [], -0.5),
    ]
    rows = [
        ["a", "-0.30 points over 2 seeds", "met"],
        ["b", "-0.60 points over 1 seeds", "missed"],
        ["c", "–", "–"],
    ]
    assert comparison.goals(found).rows == rows


def test_a_mean_stands_with_half_of_its_range() -> None:
    assert comparison.spread([90.0, 91.0, 95.0]) == "92.00 (± 2.50)"
    assert comparison.spread([90.0], 1, ", lr 0.1") == "90.0 (± 0.0, lr 0.1)"
    assert comparison.with_range([0.5, -1.0]) == "-0.25 (-1.00 to +0.50)"
