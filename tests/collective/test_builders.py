"""The table: every pattern for every collective it makes, over 1 to 17 ranks."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.collective.following import contributors, follow, result
from tweed.collective import COLLECTIVES, Pattern, Schedule, Shape, Topology, build, builders, find
from tweed.errors import UsageError

ROWS = [row.patterns[name] for name in COLLECTIVES for row in builders(name) if name in row.patterns]
IDS = [f"{row.collective}-{row.name}" for row in ROWS]
RANKS = range(1, 18)
ROOTED = ("broadcast", "reduce", "gather", "scatter")

each_row = pytest.mark.parametrize("row", ROWS, ids=IDS)
each_count = pytest.mark.parametrize("ranks", RANKS)


@each_row
@each_count
def test_every_promised_value_sums_each_contribution_once(row: Pattern, ranks: int) -> None:
    schedule = row.schedule(ranks)
    values = follow(schedule)
    for rank, chunk in result(schedule):
        assert sorted(values[rank, chunk]) == contributors(schedule, chunk)


@each_row
@each_count
def test_the_shape_is_the_cost_of_the_schedule(row: Pattern, ranks: int) -> None:
    if ranks == 1:
        assert len(row.schedule(1)) == 0
        return
    assert row.shape is not None
    assert row.shape(ranks) == pytest.approx(measured(row.schedule(ranks)))


@each_row
@pytest.mark.parametrize("ranks", [2, 5, 8])
def test_every_root_works(row: Pattern, ranks: int) -> None:
    schedule = row.schedule(ranks)
    for root in range(ranks):
        rotated = schedule.rotated(root)
        if row.collective not in ROOTED:
            assert rotated == schedule
            continue
        values = follow(rotated)
        assert rotated.root == root
        assert all(sorted(values[place]) == contributors(rotated, place[1]) for place in result(rotated))


@each_row
def test_steps_are_counted_without_gaps(row: Pattern) -> None:
    for ranks in RANKS:
        steps = sorted({send.step for send in row.schedule(ranks)})
        assert steps == list(range(len(steps)))


def measured(schedule: Schedule) -> Shape:
    whole = 1000 * schedule.chunks
    cost = schedule.cost(whole)
    messages = {(send.step, send.src, send.dst) for send in schedule}
    out = Counter(src for _, src, _ in messages)
    into = Counter(dst for _, _, dst in messages)
    fan_in = Counter((step, dst) for step, _, dst in messages)
    busiest = max(*out.values(), *into.values())
    return Shape(cost.steps, busiest, max(cost.sent + cost.received) / whole, max(fan_in.values()))


@given(ranks=st.integers(2, 24), numbytes=st.integers(0, 1 << 40))
def test_a_ring_sends_as_little_as_can_be(ranks: int, numbytes: int) -> None:
    cost = build("all_reduce", "ring", ranks).cost(numbytes)
    assert cost.steps == 2 * (ranks - 1)
    for sent in cost.sent:
        assert sent == pytest.approx(2 * (ranks - 1) * numbytes / ranks, abs=2 * ranks)
    assert len(cost.links) == ranks


@given(ranks=st.integers(2, 24), numbytes=st.integers(0, 1 << 40))
def test_pairwise_takes_two_steps_and_sends_as_little(ranks: int, numbytes: int) -> None:
    cost = build("all_reduce", "pairwise", ranks).cost(numbytes)
    assert cost.steps == 2
    assert sum(cost.sent) == sum(cost.received) == 2 * (ranks - 1) * numbytes
    assert len(cost.links) == ranks * (ranks - 1)


@given(power=st.integers(1, 5), scale=st.integers(1, 1 << 30))
def test_halving_doubling_is_balanced_for_powers_of_two(power: int, scale: int) -> None:
    ranks = 1 << power
    cost = build("all_reduce", "halving_doubling", ranks).cost(scale * ranks)
    assert cost.steps == 2 * power
    assert set(cost.sent) == set(cost.received) == {2 * (ranks - 1) * scale}


@given(ranks=st.integers(2, 64), numbytes=st.integers(0, 1 << 40))
def test_trees_take_a_logarithm_of_steps(ranks: int, numbytes: int) -> None:
    for name in ("binomial_tree", "double_binary_tree"):
        assert build("broadcast", name, ranks).cost(numbytes).steps == (ranks - 1).bit_length()
    cost = build("all_reduce", "double_binary_tree", ranks).cost(numbytes)
    assert max(cost.sent + cost.received) <= 2 * numbytes + 4


@given(ranks=st.integers(3, 64))
def test_in_two_trees_nobody_is_inside_both(ranks: int) -> None:
    sends = build("reduce", "double_binary_tree", ranks)
    inside = [{send.dst for send in sends if send.chunk == half} - {0} for half in (0, 1)]
    assert not inside[0] & inside[1]


@each_row
def test_who_hands_parts_on_says_so(row: Pattern) -> None:
    if row.collective == "all_to_all":
        assert row.equal_parts == (not row.schedule(6).direct)
    else:
        assert not row.equal_parts


def test_all_contributions_of_a_part_arrive_in_one_step() -> None:
    first = [send for send in build("all_reduce", "pairwise", 6) if send.step == 0]
    assert Counter(send.dst for send in first) == dict.fromkeys(range(6), 5)
    assert all(send.chunk == send.dst for send in first)


def test_sums_of_one_step_are_in_a_fixed_order() -> None:
    schedule = build("all_reduce", "exchange", 4)
    assert [(send.src, send.dst) for send in schedule][:3] == [(0, 1), (0, 2), (0, 3)]
    for earlier, later in pairwise(schedule):
        assert earlier.step <= later.step


def test_every_collective_has_a_builder() -> None:
    assert {row.collective for row in ROWS} == set(COLLECTIVES)


def test_building_is_cached() -> None:
    assert build("all_reduce", "ring", 7) is build("all_reduce", "ring", 7)


def test_who_looks_at_links_must_know_them() -> None:
    with pytest.raises(UsageError, match=r"'multitree' needs a network whose links are known: `tweed plan`"):
        build("all_reduce", "multitree", 4)


@pytest.mark.parametrize("name", ["ring", "pairwise", "halving_doubling"])
def test_a_flat_network_is_a_complete_graph(name: str) -> None:
    flat = Topology.complete(5, 10**9, 1e-5)
    assert build("all_reduce", name, 5).digest == build("all_reduce", name, flat).digest


def test_a_builder_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"no builder 'ring' for gather; there are: star, binomial_tree"):
        find("gather", "ring")
    with pytest.raises(UsageError, match=r"no such collective"):
        find("gather_all", "ring")
