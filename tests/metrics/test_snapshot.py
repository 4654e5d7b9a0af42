"""The algebra of snapshots: differences, sums, who is late, and the way through JSON."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.metrics.cases import BEFORE, NOW, WINDOW, matrix
from tweed.metrics.snapshot import Link, Matrix, Row, Training, arrivals, laggard

COUNTERS = [item.name for item in fields(Link) if item.name not in ("peer", "kind", "rtt_s", "bandwidth")]
count = st.integers(0, 2**63)
seconds = st.floats(0, 1e6)
trip = st.none() | st.floats(0, 10)
trainings = st.none() | st.builds(Training, count, count, count, seconds)


def link(peer: int) -> st.SearchStrategy[Link]:
    kinds = st.sampled_from(["shm", "tcp"])
    return st.builds(Link, st.just(peer), kinds, *[count] * 6, lateness_s=seconds, rtt_s=trip)


links = st.lists(st.integers(0, 4), unique=True).flatmap(lambda peers: st.tuples(*map(link, peers)))
rows = st.builds(Row, st.just(0), st.text(), st.integers(1, 2), seconds, links, trainings, seconds)
matrices = st.builds(
    Matrix,
    st.text(),
    count,
    st.just(5),
    seconds,
    st.lists(st.integers(0, 4), unique=True).flatmap(
        lambda ranks: st.tuples(
            *(rows.map(lambda row, rank=rank: replace(row, rank=rank)) for rank in sorted(ranks))
        )
    ),
)


@given(rows)
def test_a_row_survives_the_way_to_rank_0(row: Row) -> None:
    assert Row.decode(row.encode(), row.silent_s) == row


@given(matrices)
def test_a_matrix_survives_the_way_to_a_client(matrix: Matrix) -> None:
    assert Matrix.from_json(matrix.to_json()) == matrix
    assert "\n" not in matrix.to_json()


@given(rows, rows)
def test_nothing_is_ever_negative_not_even_after_a_new_beginning(before: Row, after: Row) -> None:
    between = after.since(before)
    assert between.up_s >= 0
    assert all(between.total(counter) >= 0 and between.rate(counter) >= 0 for counter in COUNTERS)
    if between.training is not None:
        assert all(getattr(between.training, item.name) >= 0 for item in fields(Training))


@given(rows)
def test_no_time_no_rate(row: Row) -> None:
    same = row.since(row)
    assert same.up_s == 0
    assert all(same.rate(counter) == 0 for counter in COUNTERS)


grows = st.lists(st.integers(0, 2**40), min_size=len(COUNTERS) - 1, max_size=len(COUNTERS) - 1)


@given(st.tuples(grows, grows, grows))
def test_differences_add_up(grown: tuple[list[int], ...]) -> None:
    """What happened from first to last is what happened in between, where nothing began anew."""
    totals = [0] * (len(COUNTERS) - 1)
    moments = []
    for more in grown:
        totals = [total + extra for total, extra in zip(totals, more, strict=True)]
        counted = dict(zip(COUNTERS, totals, strict=False))
        moments.append(Row(0, "a", 1, float(len(moments)), (Link(1, "tcp", **counted),)))
    first, middle, last = moments
    for counter in COUNTERS:
        parts = middle.since(first).total(counter) + last.since(middle).total(counter)
        assert last.since(first).total(counter) == parts


def test_rates_are_counts_over_the_ranks_own_time() -> None:
    row = WINDOW.rows[0]
    assert row.up_s == 2.0
    assert row.rate("bytes_out") == 1e6
    assert row.rate("retransmissions") == 1.0
    assert row.training == Training(10, 10, 0, 0.5, 0.25)
    assert row.under_way_s == 1.0


def test_another_process_counts_from_zero() -> None:
    again = replace(NOW.rows[0], pid=7)
    assert again.since(BEFORE.rows[0]) == again


def test_a_link_that_was_not_there_before_counts_from_zero() -> None:
    bare = replace(BEFORE.rows[0], links=())
    assert NOW.rows[0].since(bare).links == NOW.rows[0].links


def test_the_round_trip_is_that_of_the_later_moment() -> None:
    late = replace(NOW.rows[0].links[0], rtt_s=0.5)
    assert late.since(BEFORE.rows[0].links[0]).rtt_s == 0.5


def test_a_rank_that_has_told_nothing_has_no_row() -> None:
    some = replace(NOW, rows=NOW.rows[:1])
    assert some.row(1) is None
    assert some.since(BEFORE).row(1) is None
    assert NOW.since(some).rows[1] == NOW.rows[1]


def test_the_laggard_is_who_costs_the_others_most_time() -> None:
    """Rank 2 of 4 comes last less often than rank 3 in the cases, but now it is very late."""
    four = matrix(1.0, 1, size=4)
    assert [arrival.rank for arrival in arrivals(four)] == [0, 1, 2, 3]
    late = laggard(four)
    assert late is not None and late.rank == 3
    slow = tuple(
        replace(
            row, links=tuple(replace(link, lateness_s=9.0) if link.peer == 2 else link for link in row.links)
        )
        for row in four.rows
    )
    late = laggard(replace(four, rows=slow))
    assert late is not None and late.rank == 2
    assert late.lateness_s == 27.0


def test_all_shares_make_up_the_whole_and_lateness_is_what_others_saw() -> None:
    one, other = Link(0, "tcp", times_last=3), Link(1, "tcp", times_last=1, lateness_s=0.1)
    own = Link(0, "self", times_last=4)
    told = Matrix("", 1, 2, 1.0, (Row(0, "a", 1, 1.0, (own, other)), Row(1, "b", 2, 1.0, (one,))))
    first, second = arrivals(told)
    assert (first.times_last, first.share, first.late_s) == (7, 0.875, 0.0)
    assert (second.times_last, second.share, second.late_s) == (1, 0.125, pytest.approx(0.02))


def test_nobody_is_late_where_nothing_happened() -> None:
    assert laggard(NOW.since(NOW)) is None
    assert [arrival.share for arrival in arrivals(NOW.since(NOW))] == [0.0, 0.0]
