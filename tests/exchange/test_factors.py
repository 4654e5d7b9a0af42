"""Factors: when they pay, and what they are known to be the factors of."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tweed.exchange.factor_record import FactorRecord, Factors, pays

sizes = st.integers(1, 5000)


def _received(ranks: int, rows: int, outputs: int, inputs: int) -> tuple[int, int]:
    """Values that a rank receives, times the number of ranks: by an all-gather of factors, and by a ring."""
    return ranks * (ranks - 1) * rows * (outputs + inputs), 2 * (ranks - 1) * outputs * inputs


@given(st.integers(2, 64), st.integers(0, 5000), sizes, sizes)
def test_what_is_less_is_sent(ranks: int, rows: int, outputs: int, inputs: int) -> None:
    factors, matrix = _received(ranks, rows, outputs, inputs)
    assert pays(rows, (outputs, inputs), ranks) == (factors < matrix)


@given(st.integers(2, 64), sizes, sizes)
def test_there_is_one_switch(ranks: int, outputs: int, inputs: int) -> None:
    last = -(-2 * outputs * inputs // (ranks * (outputs + inputs))) - 1  # the most rows that are less
    assert pays(last, (outputs, inputs), ranks) and not pays(last + 1, (outputs, inputs), ranks)


@given(st.integers(2, 64), st.integers(0, 5000), sizes, sizes)
def test_factors_of_half_the_bytes_pay_for_twice_the_rows(ranks: int, rows: int, out: int, into: int) -> None:
    assert pays(2 * rows, (out, into), ranks, item_bytes=2) == pays(rows, (out, into), ranks, item_bytes=4)


def test_one_rank_has_nothing_to_send() -> None:
    assert not pays(1, (100, 100), ranks=1)


def _use(rows: int, seed: int) -> tuple[Tensor, Factors]:
    draw = torch.Generator().manual_seed(seed)
    factors = Factors(*(torch.randn(rows, 32, generator=draw) for _ in range(2)))
    return factors.outputs.t() @ factors.inputs, factors


@given(st.lists(st.integers(0, 3), min_size=1, max_size=3), st.integers(0, 2**20))
def test_uses_in_several_passes_are_joined(rows: list[int], seed: int) -> None:
    record, weight, grad = FactorRecord({"weight"}, 2), torch.zeros(32, 32), torch.zeros(32, 32)
    for number, count in enumerate(rows):
        product, factors = _use(count, seed + number)
        record.add(weight, product, factors)
        grad = product.clone() if number == 0 else grad + product
        assert record.settle(weight, grad)
    joined = record.of(weight)
    assert joined is not None and joined.rows == sum(rows)
    torch.testing.assert_close(joined.outputs.t() @ joined.inputs, grad, rtol=1e-5, atol=1e-5)


def test_a_gradient_that_was_changed_is_not_its_factors() -> None:
    record, weight = FactorRecord({"weight"}, 2), torch.zeros(32, 32)
    product, factors = _use(2, 0)
    record.add(weight, product, factors)
    assert record.settle(weight, product) and record.of(weight) is not None
    product[3, 4] += 1e-6  # the gradient may be the very tensor that the layer made
    assert not record.settle(weight, product) and record.of(weight) is None


def test_memory_of_factors_may_be_used_again() -> None:
    record, weight = FactorRecord({"weight"}, 2), torch.zeros(32, 32)
    product, factors = _use(2, 0)
    record.add(weight, product, factors)
    kept = factors.inputs.clone()
    factors.inputs.zero_()
    record.settle(weight, product)
    found = record.of(weight)
    assert found is not None and torch.equal(found.inputs, kept)


def test_more_rows_than_pay_are_not_kept_and_that_is_no_surprise() -> None:
    record, weight = FactorRecord({"weight"}, 2), torch.zeros(32, 32)
    product, factors = _use(16, 0)
    record.add(weight, product, factors)
    assert record.settle(weight, product) and record.of(weight) is None


def test_a_cleared_gradient_begins_anew() -> None:
    record, weight = FactorRecord({"weight"}, 2), torch.zeros(32, 32)
    for seed in range(2):
        product, factors = _use(1 + seed, seed)
        record.add(weight, product, factors)
        assert record.settle(weight, product.clone())
    found = record.of(weight)
    assert found is not None and found.rows == 2
