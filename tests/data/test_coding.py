"""Codes for sums and products: any of the promised numbers of answers are enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.data.coding import Lagrange, decode, gradient_code, hybrid, nested, uncoded
from tweed.errors import UsageError

sizes = st.integers(2, 9).flatmap(lambda workers: st.tuples(st.just(workers), st.integers(1, workers)))


@given(sizes, st.randoms(use_true_random=False))
def test_any_of_so_many_workers_are_enough_for_a_gradient_code(size: tuple[int, int], random: Any) -> None:
    workers, load = size
    code = gradient_code(workers, load)
    gradients = np.arange(3.0 * workers).reshape(workers, 3)
    came = random.sample(range(workers), workers - load + 1)
    rows = np.concatenate([code[worker] for worker in came])
    assert all((row != 0).sum() <= load for row in rows)
    weights = decode(rows, np.ones(workers))
    assert weights is not None
    np.testing.assert_allclose(weights @ (rows @ gradients), gradients.sum(axis=0), atol=1e-6)


@pytest.mark.parametrize("make", [uncoded, nested, hybrid])
@given(size=sizes)
def test_all_messages_are_enough_and_each_is_of_shards_that_are_done(
    make: Callable[[int, int], Any], size: tuple[int, int]
) -> None:
    workers, load = size
    rows = make(workers, load)
    for worker, own in enumerate(rows):
        assert len(own) == load
        for place, row in enumerate(own):
            done = {(worker + at) % workers for at in range(place + 1)}
            assert set(np.flatnonzero(row).tolist()) <= done
    assert decode(np.concatenate(rows), np.ones(workers)) is not None
    first = decode(np.concatenate([own[:1] for own in rows]), np.ones(workers))
    assert first is not None and np.allclose(first, 1)  # a shard each


def test_what_is_not_enough_does_not_add_up() -> None:
    code = gradient_code(6, 3)
    assert decode(np.concatenate(code[:3]), np.ones(6)) is None
    assert decode(np.zeros((0, 6)), np.ones(6)) is None


@pytest.mark.parametrize("load", [0, 4])
def test_a_load_that_cannot_be_is_refused(load: int) -> None:
    for make in (uncoded, gradient_code):
        with pytest.raises(UsageError, match="holds from one shard to 3"):
            make(3, load)


@pytest.mark.parametrize("seed", range(20))
def test_a_lagrange_code_decodes_any_values_to_a_millionth(seed: int) -> None:
    """K = 20 with three values of each of 20 workers: gradients of least squares, of random arrivals."""
    random = np.random.default_rng(seed)
    shards, point = random.normal(size=(20, 6, 4)), random.normal(size=4)
    code = Lagrange(20, 60)
    stored = code.encode(shards)
    which = random.permutation(60)[: code.needed].tolist()
    values = np.stack([stored[at].T @ (stored[at] @ point) for at in which])
    found = code.decode(which, values)
    true = sum(shard.T @ (shard @ point) for shard in shards)
    assert np.abs(found - true).max() <= 1e-6 * np.abs(true).max()


def test_too_few_values_are_refused() -> None:
    with pytest.raises(UsageError, match="39 values are needed"):
        Lagrange(20, 38)
    code = Lagrange(2, 4)
    with pytest.raises(UsageError, match="2 different values came, and 3 are needed"):
        code.decode([0, 1, 1], np.zeros((3, 1), dtype=np.complex128))
    for which in ([0, 1, 1, 2], [0, 1, -1], [0, 1, 4]):
        with pytest.raises(UsageError):
            code.decode(which, np.zeros((3, 1), dtype=np.complex128))
