"""Expected times of products: the known table, the best k by Lambert's W, and the fit to first workers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.data.coding.product_times import (
    AdaptiveK,
    best_k,
    best_share,
    coded_s,
    fitted_to_first,
    replicated_s,
    speedup,
    uncoded_s,
)
from tweed.data.coding.times import Stragglers
from tweed.errors import UsageError

#: For 100 workers, by mu: 100 times the seconds uncoded, replicated, copies, coded, k; and 100 k / n.
TABLE = {
    0.5: (11.38, 11.0, 2, 4.69, 58, 57.6),
    1: (6.19, 6.19, 1, 3.13, 69, 68.2),
    2: (3.59, 3.59, 1, 2.24, 78, 77.8),
}


@pytest.mark.parametrize("mu", TABLE)
def test_the_known_table_of_a_hundred_workers(mu: float) -> None:
    model, (uncoded, replicated, copies, coded, k, share) = Stragglers(1.0, mu), TABLE[mu]
    assert 100 * uncoded_s(100, model) == pytest.approx(uncoded, abs=0.006)
    assert 100 * replicated_s(100, copies, model) == pytest.approx(replicated, abs=0.006)
    assert 100 * coded_s(100, k, model) == pytest.approx(coded, abs=0.006)
    assert best_k(100, model) == k and 100 * best_share(model) == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize(("n", "mu", "times"), [(100, 1, 1.98), (8, 1, 1.26), (8, 0.5, 1.45)])
def test_the_speedup_is_the_known_one(n: int, mu: float, times: float) -> None:
    assert speedup(n, Stragglers(1.0, mu)) == pytest.approx(times, abs=0.005)


@given(st.integers(1, 120), st.floats(1e-3, 1e3), st.floats(0.0, 10.0))
def test_no_k_is_much_better_than_that_of_lamberts_function(n: int, mu: float, alpha: float) -> None:
    model = Stragglers(alpha, mu)
    least = min(coded_s(n, k, model) for k in range(1, n + 1))
    assert coded_s(n, best_k(n, model), model) <= 1.01 * least
    assert 0 <= best_share(model) <= 1


def test_without_stragglers_nothing_is_coded() -> None:
    assert best_k(8, Stragglers(1.0, 1e9)) == 8 and best_k(8, Stragglers(0.0, 1.0)) == 1


@pytest.mark.parametrize("first", [2, 6, 8])
def test_the_fit_to_the_first_workers_has_no_bias(first: int) -> None:
    drawn = np.sort(Stragglers(2.0, 0.5).task_s(8, 4000), axis=1)[:, :first]
    fits = [fitted_to_first(times.tolist(), 8) for times in drawn]
    assert np.mean([fit.alpha for fit in fits]) == pytest.approx(2.0, rel=0.05)
    assert np.mean([1 / fit.mu for fit in fits]) == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize(("mu", "start", "best"), [(0.2, 8, 4), (1e6, 5, 8), (1.0, 6, 6)])
def test_k_follows_the_delays(mu: float, start: int, best: int) -> None:
    choice, model = AdaptiveK(8, start, most=1000), Stragglers(1.0, mu)
    for whole in model.task_s(8, 64, seed=3):
        choice.handle((np.sort(whole)[: choice.k] / choice.k).tolist())
    assert coded_s(8, choice.k, model) <= 1.05 * coded_s(8, best, model)
    assert best_k(8, model) == best and choice.stragglers is not None


def test_k_stays_where_little_is_known_and_below_the_rows() -> None:
    choice = AdaptiveK(8, 1, most=3)
    assert choice.handle([1.0]) == 1 and choice.stragglers is None
    assert choice.handle([1.0, 1.0, 1.0]) == 3


def test_what_cannot_be_is_refused() -> None:
    model = Stragglers(1.0, 1.0)
    for ask, text in (
        (lambda: coded_s(3, 4, model), "from 1 to 3"),
        (lambda: replicated_s(8, 3, model), "a divisor of 8"),
        (lambda: fitted_to_first([1.0], 8), "from 2 to 8"),
    ):
        with pytest.raises(UsageError, match=text):
            ask()
