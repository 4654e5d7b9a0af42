"""The search for a learning rate: it ends, tries nothing twice, and its best lies inside or is unsettled."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.errors import UsageError
from tweed.systems.harness.learning_rates import (
    Decision,
    Grid,
    State,
    best_lr,
    decide,
    require_settled,
    search,
)

SCORES = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True))
GRIDS = st.builds(
    Grid, st.floats(1e-5, 10), st.sampled_from([1.5, 2.0, 3.0, 10**0.5, 10.0]), st.integers(1, 9)
)


def run(grid: Grid, score: Any) -> tuple[list[float], dict[float, Any], Decision]:
    tried: list[float] = []
    scores: dict[float, Any] = {}
    while (decision := decide(grid, scores)).state is State.TRY:
        tried.append(decision.rate)
        scores[decision.rate] = score(decision.rate)
        assert len(tried) <= grid.tries
    return tried, scores, decision


@given(GRIDS, st.data())
def test_it_ends_and_the_best_is_inside_or_unsettled(grid: Grid, data: st.DataObject) -> None:
    tried, scores, decision = run(grid, lambda rate: data.draw(SCORES))
    assert len(set(tried)) == len(tried) <= grid.tries
    worth = {
        rate: score if score is not None and math.isfinite(score) else -math.inf
        for rate, score in scores.items()
    }
    assert worth[decision.rate] == max(worth.values())
    failed = max(worth.values()) == -math.inf
    assert failed == (decision.state is State.FAILED)
    inside = min(tried) < decision.rate < max(tried)
    assert failed or inside == (decision.state is State.SETTLED)
    assert (inside and not failed) or len(tried) == grid.tries


@given(GRIDS, st.integers(-3, 3))
def test_a_single_peak_in_reach_is_found(grid: Grid, place: int) -> None:
    peak = grid.rate(place)
    _, _, decision = run(grid, lambda rate: -abs(math.log(rate / peak)))
    if grid.tries >= abs(place) + 3:
        assert decision == Decision(peak, State.SETTLED)


def test_the_grid_widens_at_the_edge_of_the_best() -> None:
    grid = Grid(0.1, 2.0)
    assert decide(grid, {}) == Decision(0.1, State.TRY)
    assert decide(grid, {0.1: 0.8}) == Decision(0.2, State.TRY)
    assert decide(grid, {0.1: 0.8, 0.2: None}) == Decision(0.05, State.TRY)
    assert decide(grid, {0.1: 0.8, 0.2: None, 0.05: 0.7}) == Decision(0.1, State.SETTLED)
    assert decide(grid, {0.1: 0.8, 0.2: math.nan, 0.05: 0.9}) == Decision(0.025, State.TRY)
    assert decide(grid, {0.1: 0.8, 0.2: 0.8}).rate == 0.05  # of equally good ones the lowest counts


@pytest.mark.parametrize("grid", [(0.0, 2.0, 3), (0.1, 1.2, 3), (0.1, 2.0, 0)])
def test_what_is_no_grid_is_refused(grid: tuple[float, float, int]) -> None:
    with pytest.raises(UsageError, match="is no grid"):
        Grid(*grid)


def test_a_search_goes_on_where_its_notes_end() -> None:
    measured: list[float] = []

    def measure(rate: float) -> float:
        measured.append(rate)
        return -abs(math.log(rate / 0.3))

    whole = list(search("a", Grid(0.1), [], measure))
    assert [line["lr"] for line in whole] == [*measured, 0.3] == [0.1, 0.3, 0.9, 0.3]
    assert best_lr(whole, "a") == 0.3 and best_lr(whole, "b") is None
    require_settled(whole)
    measured.clear()
    assert [*whole[:2], *search("a", Grid(0.1), whole[:2], measure)] == whole and measured == [0.9]
    assert list(search("a", Grid(0.1), whole, measure)) == []
    assert len(list(search("b", Grid(0.1), whole, measure))) == 4


def test_a_side_without_success_at_any_rate_has_failed_and_says_so() -> None:
    grid = Grid(0.1, tries=5)
    lines = list(search("hopeless", grid, [], lambda rate: None))
    assert len(lines) == 6 and lines[-1]["settled"] and lines[-1]["lr"] == 0.1
    assert decide(grid, {line["lr"]: None for line in lines[:-1]}).state is State.FAILED
    require_settled(lines)


def test_figures_of_an_unsettled_side_are_not_published() -> None:
    lines = [*search("ours", Grid(0.1, tries=2), [], lambda rate: rate)]
    assert lines[-1]["settled"] is False
    with pytest.raises(UsageError, match=r"for ours \(0.3 of 0.1 to 0.3\)"):
        require_settled(lines)
