"""Codes of which any k parts are enough: every subset, condition numbers, and what is refused by name."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.data.coding.mds import POINTS, MdsCode, mds_code
from tweed.errors import UsageError


@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize(("n", "k"), [(1, 1), (4, 1), (5, 5), (8, 6), (12, 6), (12, 9)])
def test_any_k_of_n_parts_give_the_blocks(points: str, n: int, k: int) -> None:
    code = mds_code(n, k, points)
    blocks = np.random.default_rng([n, k]).normal(size=(k, 3, 2))
    parts = code.encode(blocks)
    for which in combinations(range(n), k):
        np.testing.assert_allclose(code.decode(which, parts[list(which)]), blocks, atol=1e-10)


@given(st.data())
def test_parts_come_in_any_order_and_more_than_k_do_as_well(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 9))
    k = data.draw(st.integers(1, n))
    which = data.draw(st.permutations(range(n)))[: data.draw(st.integers(k, n))]
    code = mds_code(n, k, data.draw(st.sampled_from([*POINTS])))
    blocks = np.random.default_rng(data.draw(st.integers(0, 99))).normal(size=(k, 4))
    np.testing.assert_allclose(code.decode(which, code.encode(blocks)[which]), blocks, atol=1e-9)
    assert code.condition(which) <= code.worst * (1 + 1e-9), "the worst of all subsets is known"


@pytest.mark.parametrize("points", ["systematic", "orthogonal"])
def test_sampled_subsets_of_a_hundred_parts_give_the_blocks(points: str) -> None:
    code, random = mds_code(100, 69, points), np.random.default_rng(5)
    blocks = random.normal(size=(69, 4))
    parts = code.encode(blocks)
    for which in (random.permutation(100)[:69].tolist() for _ in range(100)):
        if code.is_enough(which):
            np.testing.assert_allclose(code.decode(which, parts[which]), blocks, atol=1e-10)


def test_blocks_of_a_systematic_code_are_its_first_parts_and_come_back_bit_for_bit() -> None:
    code, blocks = mds_code(8, 6), np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    parts = code.encode(blocks)
    assert parts.dtype == np.float32 and np.array_equal(parts[:6], blocks)
    assert np.array_equal(code.decode([5, 4, 3, 2, 1, 0], blocks[::-1]), blocks)


def test_columns_of_orthonormal_codes_are_that() -> None:
    for points in ("orthogonal", "chebyshev"):
        generator = mds_code(20, 12, points, digits=9).generator
        np.testing.assert_allclose(generator.T @ generator, np.eye(12), atol=1e-12)


def test_a_code_that_loses_more_digits_than_asked_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"chebyshev \(100, 69\) code loses 1\d\.\d digits .* systematic or"):
        mds_code(100, 69, "chebyshev")
    with pytest.raises(UsageError, match=r"systematic \(8, 6\) code loses .* and 0.5 may be lost"):
        mds_code(8, 6, digits=0.5)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [((3, 4), "give k from 1 to 3"), ((3, 0), "give k from 1 to 3"), ((3, 2, "magic"), "no 'magic' points")],
)
def test_codes_that_cannot_be_are_refused(arguments: tuple[int, int], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        mds_code(*arguments)


@pytest.mark.parametrize("which", [[0, 0], [0, 3], [-1, 0], [0]])
def test_parts_that_are_none_or_too_few_are_named(which: list[int]) -> None:
    code = mds_code(3, 2)
    with pytest.raises(UsageError, match="by number" if len(which) == 2 else "2 are needed"):
        code.decode(which, np.ones((len(which), 4)))


def test_blocks_of_another_number_are_refused() -> None:
    with pytest.raises(UsageError, match="3 blocks cannot be encoded by a systematic"):
        mds_code(4, 2).encode(np.ones((3, 1)))


def test_a_singular_subset_is_named_and_one_part_more_mends_it() -> None:
    rows = np.array([[1.0, 1.0], [1.0, 1.0], [0.0, 1.0]])
    code = MdsCode("random", rows, digits=6.0, worst=np.inf)
    assert not code.is_enough([0, 1]) and code.is_enough([1, 2]) and code.is_enough([0, 1, 2])
    blocks = np.array([[3.0], [4.0]])
    with pytest.raises(UsageError, match=r"parts \[0, 1\] of a random \(3, 2\) code are singular"):
        code.decode([0, 1], code.encode(blocks)[:2])
    np.testing.assert_allclose(code.decode([0, 1, 2], code.encode(blocks)), blocks)
