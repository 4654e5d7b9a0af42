"""One table for the stage: every aggregate joins by adding a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tweed.aggregate import (
    ARC,
    CAF,
    MDA,
    SMEA,
    Aggregate,
    Arrival,
    Bucketing,
    Bulyan,
    CentredClipping,
    FoolsGold,
    GeometricMedian,
    Krum,
    Mean,
    MeanAroundMedian,
    Median,
    MoNNA,
    MultiKrum,
    NearestNeighbourMixing,
    NormClipping,
    Phocas,
    Reason,
    ThreeSigma,
    TrimmedMean,
    Verdict,
    conclude,
)
from tweed.errors import UsageError
from tweed.exchange.owners import Owners
from tweed.strategy import Strategy

Part = Aggregate[Any]
Rows = list[list[float]]
TABLE: list[Part] = [
    Mean(),
    Median(),
    TrimmedMean(),
    TrimmedMean(0.0),
    TrimmedMean(0.49),
    MeanAroundMedian(),
    Phocas(0.49),
    Krum(),
    MultiKrum(0.49),
    Bulyan(0.125),
    GeometricMedian(),
    CentredClipping(radius=1e6),
    MDA(),
    SMEA(0.49),
    CAF(),
    MoNNA(),
    ThreeSigma(),
    FoolsGold(),
    NearestNeighbourMixing(Median()),
    NearestNeighbourMixing(NormClipping(Krum())),
    Bucketing(GeometricMedian()),
    NormClipping(Mean()),
    NormClipping(Mean(), 1e6),
    ARC(Bucketing(CentredClipping(radius=1e6))),
]

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
    update, verdicts, state = conclude(aggregate, state, float(len(arrived)))
    assert aggregate.poll(state, 99.0)[:2] == (None, ())
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
    np.testing.assert_allclose(update, rows[0], rtol=1e-12, atol=1e-12)


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


BROKEN = [float("nan"), float("inf"), -float("inf")]
ROBUST: list[Part] = [Median(), TrimmedMean(2), MeanAroundMedian(2), Phocas(2), TrimmedMean(0.4)]
robust = pytest.mark.parametrize("aggregate", ROBUST, ids=repr)


@robust
@given(
    honest=st.lists(numbers, min_size=3, max_size=3),
    byzantine=st.lists(st.floats(width=32), min_size=2, max_size=2),
)
def test_a_minority_that_sends_anything_moves_nothing_far_from_the_others(
    aggregate: Part, honest: list[float], byzantine: list[float]
) -> None:
    update = batch(aggregate, arrivals([[value] for value in [*honest, *byzantine]]))[0]
    # What is nearest to a point among the others is nearer than the farthest of them. A mean rounds.
    reach = isinstance(aggregate, MeanAroundMedian | Phocas) * (max(honest) - min(honest)) + 1e-3
    assert min(honest) - reach <= update[0] <= max(honest) + reach


@robust
@pytest.mark.parametrize("value", BROKEN)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_what_is_not_finite_is_a_verdict(aggregate: Part, value: float, dtype: torch.dtype) -> None:
    rows = [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [4.0, 4.0], [9.0, value]]
    arrived = [Arrival(torch.tensor(row, dtype=dtype), sender) for sender, row in enumerate(rows)]
    update, verdicts = batch(aggregate, arrived)
    # Of the four that are left one may be hostile: 1, 2 and 3 are as near to 2.5 as 2, 3 and 4.
    expected = 2.0 if isinstance(aggregate, MeanAroundMedian | Phocas) else 2.5
    assert update.dtype == dtype and update.tolist() == [expected, expected]
    assert verdicts[4] == Verdict(4, 0.0, Reason.NOT_FINITE)
    assert [verdict.weight for verdict in verdicts[:4]] == [0.25] * 4


@robust
def test_where_nothing_is_finite_nothing_is_changed(aggregate: Part) -> None:
    update, verdicts = batch(aggregate, arrivals([[value] for value in [*BROKEN, *BROKEN]]))
    assert update.tolist() == [0.0]
    assert {verdict.weight for verdict in verdicts} == {0.0}


@robust
def test_what_the_network_lost_is_no_contribution(aggregate: Part) -> None:
    lost = np.array([True, False])
    torn = [Arrival(np.array([0.0, 7.0]), sender, missing=lost) for sender in range(5)]
    assert batch(aggregate, torn)[0].tolist() == [0.0, 7.0]
    torn[3] = Arrival(np.array([5.0, 7.0]), 3)
    assert batch(aggregate, torn)[0].tolist() == [5.0, 7.0]


@robust
def test_what_has_another_shape_than_most_is_a_verdict(aggregate: Part) -> None:
    arrived = [Arrival(np.full(3 if sender == 2 else 4, 7.0), sender) for sender in range(5)]
    arrived[4] = Arrival(np.full(4, 7.0), 4, missing=np.zeros(2, bool))
    update, verdicts = batch(aggregate, arrived)
    assert update.tolist() == [7.0] * 4
    assert [verdict.reason for verdict in verdicts if verdict.weight == 0] == [Reason.SHAPE] * 2


@robust
def test_one_dtype_is_as_good_as_another(aggregate: Part) -> None:
    rows = [[sender, 2 * sender] for sender in range(5)]
    expected = batch(aggregate, arrivals(rows))[0].tolist()
    kinds = [torch.int32, torch.float32, torch.bfloat16, torch.float64, torch.float16]
    for kind in [*kinds, None]:
        values = [torch.tensor(row, dtype=kind or kinds[at]) for at, row in enumerate(rows)]
        update = batch(aggregate, [Arrival(value, sender) for sender, value in enumerate(values)])[0]
        assert update.is_floating_point() and update.tolist() == expected, kind


@robust
def test_a_value_too_large_for_its_neighbours_dtype_spoils_nothing(aggregate: Part) -> None:
    values = [torch.ones(2), *[torch.ones(2)] * 3, torch.full((2,), 1e39, dtype=torch.float64)]
    update, verdicts = batch(aggregate, [Arrival(value, sender) for sender, value in enumerate(values)])
    assert update.tolist() == [1.0, 1.0]
    assert all(verdict.weight == 0.2 for verdict in verdicts)


def test_the_mean_of_numbers_whose_sum_overflows_is_their_mean() -> None:
    largest = torch.finfo(torch.float32).max
    values = [torch.tensor([largest, 1.0]), torch.tensor([largest, 3.0])]
    update, verdicts = batch(Mean(), [Arrival(value, sender) for sender, value in enumerate(values)])
    assert update.tolist() == [largest, 2.0]
    assert [verdict.weight for verdict in verdicts] == [0.5, 0.5]


@robust
def test_memory_may_lie_anyhow(aggregate: Part) -> None:
    columns = np.arange(10.0).reshape(5, 2).T.copy().T
    unaligned = np.frombuffer(b"\0" + np.array([1.0, 1.0], np.float32).tobytes(), np.float32, 2, 1)
    assert batch(aggregate, [Arrival(unaligned, sender) for sender in range(5)])[0].tolist() == [1.0, 1.0]
    expected = batch(aggregate, arrivals(columns.tolist()))[0].tolist()
    found = batch(aggregate, [Arrival(columns[sender], sender) for sender in range(5)])[0]
    assert found.tolist() == expected
    for shape in ((), (0,), (2, 0, 3)):
        assert (
            batch(aggregate, [Arrival(torch.zeros(shape), sender) for sender in range(5)])[0].shape == shape
        )


def test_complex_numbers_are_refused() -> None:
    with pytest.raises(UsageError, match="real numbers"):
        batch(Median(), [Arrival(torch.zeros(2, dtype=torch.complex64), 0)])


@pytest.mark.parametrize("part", [TrimmedMean, MeanAroundMedian, Phocas])
@pytest.mark.parametrize("f", [-1, 0.5, 1.5, float("nan"), np.float32(0.7), True, False, "0.2", None])
def test_an_f_that_cannot_be_is_refused(part: Any, f: float) -> None:
    with pytest.raises(UsageError, match=f"{part.__name__}.*a share below 0.5"):
        part(f)


def test_a_rule_that_cannot_hold_says_how_many_it_needs() -> None:
    words = r"TrimmedMean\(f=2\) needs at least 5 contributions, and there are 4"
    with pytest.raises(UsageError, match=words):
        batch(TrimmedMean(2), arrivals([[1.0]] * 4))
    with pytest.raises(UsageError, match=words):
        Owners.of(Strategy(aggregate=TrimmedMean(2)), 0, 4)
    Owners.of(Strategy(aggregate=TrimmedMean(2)), 0, 5)


def test_f_is_a_number_or_a_share_rounded_down() -> None:
    shares: list[Any] = [0, 2, np.int64(3), 0.0, 0.29, np.float32(0.25)]
    assert [TrimmedMean(f).byzantine(100) for f in shares] == [0, 2, 3, 0, 29, 25]


def test_the_rules_are_what_their_papers_say() -> None:
    rows = [[0.0], [1.0], [2.0], [4.0], [100.0]]
    found = {repr(rule): batch(rule, arrivals(rows))[0].tolist() for rule in ROBUST}
    assert found == {
        "Median()": [2.0],
        "TrimmedMean(f=2)": [2.0],
        "MeanAroundMedian(f=2)": [1.0],  # of 0, 1, 2: as near to 2 as 4 is, and lower
        "Phocas(f=2)": [1.0],
        "TrimmedMean(f=0.4)": [2.0],
    }
