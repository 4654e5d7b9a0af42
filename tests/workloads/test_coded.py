"""Coded products: any k of n, other shapes by name, and live processes of which some never answer."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.blocks import blocks
from tests.workloads import coded_functions as functions
from tweed.data.coding.product_times import best_k, coded_s, replicated_s, uncoded_s
from tweed.data.coding.times import Stragglers
from tweed.errors import UsageError
from tweed.workloads.coded import CodedMatrix, CodedProducts, coded_matmul, least_squares, simulate_products
from tweed.workloads.coded.simulated import speculative
from tweed.workloads.tasks import LocalWorkers

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(("dtype", "off"), [(np.float64, 1e-10), (np.float32, 1e-4)])
@pytest.mark.parametrize("columns", [(), (3,)])
def test_any_k_of_n_products_give_that_of_the_matrix(
    dtype: Any, off: float, columns: tuple[int, ...]
) -> None:
    matrix, x = (RANDOM.normal(size=size).astype(dtype) for size in ((50, 20), (20, *columns)))
    coded, wanted = CodedMatrix(matrix, 12, 9), matrix @ x
    products = coded.parts @ x
    for which in combinations(range(12), 9):
        found = coded.decode({number: products[number] for number in which})
        assert found.shape == wanted.shape and found.dtype == dtype
        assert np.abs(found - wanted).max() <= off * np.abs(wanted).max()


@given(st.integers(1, 30), st.integers(1, 5), st.data())
def test_any_number_of_rows_can_be_coded(rows: int, columns: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, min(rows, 7)))
    matrix, x = RANDOM.normal(size=(rows, columns)), RANDOM.normal(size=columns)
    coded = CodedMatrix(matrix, 7, k)
    which = data.draw(st.permutations(range(7)))[:k]
    assert coded.is_enough(which) and coded.parts.shape[1] * k - rows < k
    np.testing.assert_allclose(coded.decode({i: coded.parts[i] @ x for i in which}), matrix @ x, atol=1e-9)


@pytest.mark.parametrize(
    ("matrix", "settings", "text"),
    [
        (np.ones(3), (3, 2), r"a matrix \[3\] of float64 cannot be coded"),
        (np.float64(3), (3, None), r"a matrix \[\] of float64 cannot be coded"),
        (np.ones((0, 3)), (3, None), r"a matrix \[0, 3\] of float64 cannot be coded"),
        (np.ones((3, 3), int), (3, 2), "of int64 cannot be coded"),
        (np.array([[1.0, np.nan]]), (3, 1), "not finite"),
        (np.ones((3, 3)), (3, 4), "k=4 blocks"),
        (np.ones((9, 3)), (3, 4), "give k from 1 to 3"),
    ],
)
def test_what_cannot_be_coded_is_named(matrix: Any, settings: tuple[int, int | None], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        CodedProducts(matrix, *settings)


def test_other_shapes_are_named() -> None:
    coded = CodedMatrix(np.ones((4, 3)), 3, 2)
    with pytest.raises(UsageError, match=r"\[4, 3\] cannot be multiplied by \[4\]: give \[3\] or \[3, q\]"):
        coded.check(np.ones(4))
    with pytest.raises(UsageError, match=r"other shapes than \[2\]: \{2: \[5\]\}"):
        coded.decode({0: np.ones(2), 1: np.ones(2), 2: np.ones(5)})
    with pytest.raises(UsageError, match=r"shape \[5\] are none of parts with 2 rows"):
        coded.decode({0: np.ones(5), 1: np.ones(5)})
    for products in ({}, {0: np.ones(2)}):
        with pytest.raises(UsageError, match="2 are needed"):
            coded.decode(products)


def test_gradient_descent_with_both_products_coded_is_that_without() -> None:
    x, true = RANDOM.normal(size=(40, 6)), RANDOM.normal(size=6)
    arrivals = np.random.default_rng(1)

    def product(matrix: Any) -> Any:
        coded = CodedMatrix(matrix, 6, 4)

        def multiply(vector: Any) -> Any:
            which = arrivals.permutation(6)[:4].tolist()
            return coded.decode({number: coded.parts[number] @ vector for number in which})

        return multiply

    found = least_squares(product(x), product(x.T), x @ true, steps=300, rate=0.5)
    np.testing.assert_allclose(found, least_squares(x.dot, x.T.dot, x @ true, steps=300, rate=0.5), atol=1e-9)
    np.testing.assert_allclose(found, true, atol=1e-6)
    with pytest.raises(UsageError, match=r"diverges at step .* take a rate below"):
        least_squares(x.dot, x.T.dot, x @ true, steps=2000, rate=1e3)


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_simulated_means_are_the_expected_ones(mu: float) -> None:
    model = Stragglers(1.0, mu)
    expected = {
        "uncoded": uncoded_s(100, model),
        "replicated": min(replicated_s(100, copies, model) for copies in (1, 2, 4, 5)),
        "coded": coded_s(100, best_k(100, model), model),
    }
    for scheme, seconds in expected.items():
        assert simulate_products(scheme, 100, model, 4000).mean() == pytest.approx(seconds, rel=0.02)


def test_a_hundred_workers_are_nearly_twice_as_quick_coded_and_speculation_gains_less() -> None:
    model = Stragglers(100.0, 0.01)
    uncoded, speculated = (
        simulate_products(scheme, 100, model, 4000).mean() for scheme in ("uncoded", "speculative")
    )
    coded = simulate_products("coded", 100, model, 4000, decode_s=0.02).mean()
    assert uncoded / coded >= 1.9 and coded < speculated < uncoded


def test_a_late_part_gets_a_copy_on_a_worker_that_is_done() -> None:
    whole, spare = np.array([[4.0, 8.0, 40.0, 44.0]]), np.array([[0.0, 0.0, 12.0, 80.0]])
    assert speculative(whole, spare, late_s=3.0) == pytest.approx([11.0]), "the third by its copy: 3 + 3"
    assert speculative(whole, np.zeros((1, 4)), late_s=0.5) == pytest.approx([2.0]), "half are done"
    assert speculative(whole, spare, late_s=11.0) == pytest.approx([11.0])


def test_a_scheme_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match="no scheme 'magic'; there are uncoded"):
        simulate_products("magic", 4, Stragglers(1.0, 1.0), 1)


def test_a_live_worker_that_never_answers_is_not_needed() -> None:
    matrix, x = RANDOM.normal(size=(10, 4)), RANDOM.normal(size=(4, 2))
    matrix[5, 0] = 7.0  # the first value of part 1
    products = CodedProducts(matrix, workers=4, k=2, deadline_s=60, function=functions.hangs)
    np.testing.assert_allclose(products(x), matrix @ x, atol=1e-9)


def test_a_live_product() -> None:
    matrix, x = RANDOM.normal(size=(10, 4)).astype(np.float32), RANDOM.normal(size=4).astype(np.float32)
    found = coded_matmul(matrix, x, workers=3, k=2)
    np.testing.assert_allclose(found, matrix @ x, atol=1e-4)


def test_standing_workers_multiply_matrices_one_after_the_other() -> None:
    matrix = RANDOM.normal(size=(10, 4))
    with LocalWorkers(3) as workers:
        forward, backward = CodedProducts(matrix, workers, k=2), CodedProducts(matrix.T, workers, k=2)
        for x in RANDOM.normal(size=(3, 4)):
            np.testing.assert_allclose(backward(forward(x)), matrix.T @ (matrix @ x), atol=1e-9)


def test_the_example_of_the_page_runs() -> None:
    (example,) = (
        one for one in blocks() if one.page == "docs/coded_matmul.md" and "import CodedProducts" in one.text
    )
    exec(example.text, {})


def test_k_is_learned_live() -> None:
    matrix, x = RANDOM.normal(size=(10, 4)), RANDOM.normal(size=4)
    products = CodedProducts(matrix, workers=3, function=functions.even)
    assert products.coded.code.k == 2
    for _ in range(2):
        np.testing.assert_allclose(products(x), matrix @ x, atol=1e-9)
    assert products.coded.code.k == 3, "nobody straggles"
