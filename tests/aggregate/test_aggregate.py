"""One table for the stage: every aggregate joins by adding a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tweed.aggregate import Aggregate, Arrival, Mean, Reason, TrimmedMean, Verdict

Part = Aggregate[Any]
Rows = list[list[float]]
TABLE: list[Part] = [Mean(), TrimmedMean(), TrimmedMean(0.0), TrimmedMean(0.49)]

every_aggregate = pytest.mark.parametrize("aggregate", TABLE, ids=repr)
numbers = st.floats(-1e3, 1e3, width=32)
batches = st.integers(1, 5).flatmap(
    lambda numel: st.lists(st.lists(numbers, min_size=numel, max_size=numel), min_size=1, max_size=8)
)


def arrivals(rows: Sequence[Sequence[float]]) -> list[Arrival]:
    return [Arrival(np.array(row, dtype=np.float64), sender) for sender, row in enumerate(rows)]


def batch(aggregate: Part, arrived: Sequence[Arrival]) -> tuple[Any, tuple[Verdict, ...]]:
    """What `aggregate` makes of a batch; and that nothing is left of it."""
    state = aggregate.start()
    for now, arrival in enumerate(arrived):
        state = aggregate.handle(arrival, state, float(now))
    update, verdicts, state = aggregate.poll(state, float(len(arrived)))
    assert aggregate.poll(state, 99.0) == (None, (), aggregate.start())
    return update, verdicts


@every_aggregate
def test_it_keeps_the_contract(aggregate: Part) -> None:
    assert isinstance(aggregate, Aggregate)
    assert aggregate.poll(aggregate.start(), 0.0) == (None, (), aggregate.start())


@every_aggregate
@given(rows=batches)
def test_each_sender_gets_one_verdict_with_a_reason(aggregate: Part, rows: Rows) -> None:
    verdicts = batch(aggregate, arrivals(rows))[1]
    assert [verdict.sender for verdict in verdicts] == list(range(len(rows)))
    assert all(verdict.weight >= 0 and isinstance(verdict.reason, Reason) for verdict in verdicts)


@every_aggregate
@given(rows=batches, seed=st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(aggregate: Part, rows: Rows, seed: Any) -> None:
    in_order = arrivals(rows)
    shuffled = seed.sample(in_order, len(in_order))
    assert batch(aggregate, in_order)[0].tolist() == batch(aggregate, shuffled)[0].tolist()


@every_aggregate
@given(rows=batches)
def test_equal_contributions_come_to_just_that(aggregate: Part, rows: Rows) -> None:
    update = batch(aggregate, arrivals([rows[0]] * len(rows)))[0]
    np.testing.assert_allclose(update, rows[0], rtol=1e-12)


@every_aggregate
@given(rows=batches)
def test_the_network_can_form_it_if_it_says_so(aggregate: Part, rows: Rows) -> None:
    if aggregate.in_network is None:
        return
    on_the_way = sum(np.array(row, dtype=np.float64) / len(rows) for row in rows)
    np.testing.assert_allclose(batch(aggregate, arrivals(rows))[0], on_the_way, rtol=1e-9, atol=1e-9)


def test_the_latest_of_a_sender_counts() -> None:
    early, late, other = Arrival(np.array([9.0]), 1), Arrival(np.array([3.0]), 1), Arrival(np.array([1.0]), 0)
    update, verdicts = batch(Mean(), [early, other, late])
    assert update.tolist() == [2.0]
    assert verdicts == (Verdict(0, 0.5, Reason.EQUAL), Verdict(1, 0.5, Reason.EQUAL))


@pytest.mark.parametrize("array", [np.array, torch.tensor])
def test_what_was_lost_is_averaged_over_those_who_have_it(array: Any) -> None:
    whole = Arrival(array([1.0, 2.0, 3.0]), 0)
    torn = Arrival(array([5.0, 0.0, 0.0]), 1, missing=array([False, True, True]))
    gone = Arrival(array([6.0, 4.0, 0.0]), 2, missing=array([False, False, True]))
    assert batch(Mean(), [whole, torn, gone])[0].tolist() == [4.0, 3.0, 3.0]
    assert batch(Mean(), [torn, gone])[0].tolist() == [5.5, 4.0, 0.0]  # what reached nobody is zero
