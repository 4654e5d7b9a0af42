"""Which samples a step takes, whoever is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.data.sampler import GlobalOrder, Sampler
from tweed.errors import DataError, UsageError

#: Per step: how many members there are, and who of them are lost one after the other, by place.
STEPS = st.lists(st.tuples(st.integers(1, 6), st.lists(st.integers(0, 5), max_size=4)), max_size=12)


def history(count: int, lost: list[int]) -> list[list[str]]:
    """Members, and those that are left, as one after the other is lost."""
    members = [f"member {number}" for number in range(count)]
    found = [members]
    for place in lost[: count - 1]:
        members = [member for member in members if member != members[place % len(members)]]
        found.append(members)
    return found


@given(STEPS, st.integers(1, 30), st.integers(1, 40), st.booleans())
def test_each_sample_is_taken_once_per_pass_whoever_is_lost(
    steps: list[tuple[int, list[int]]], batch: int, numel: int, per_member: bool
) -> None:
    sampler, taken = Sampler(GlobalOrder(numel), batch, per_member), list[int]()
    for count, lost in steps:
        deal = sampler.dealt(history(count, lost))
        taken += deal.places
        sampler = sampler.counted(deal)
    assert sorted([*taken, *sampler.again]) == list(range(sampler.cursor))
    for first in range(0, sampler.cursor - numel + 1, numel):
        assert sorted(sampler.order.samples(range(first, first + numel))) == list(range(numel))


@given(STEPS, st.integers(1, 30))
def test_with_a_total_batch_a_step_takes_the_same_samples_whoever_is_lost(
    steps: list[tuple[int, list[int]]], batch: int
) -> None:
    sampler = Sampler(GlobalOrder(100), batch)
    for number, (count, lost) in enumerate(steps):
        deal = sampler.dealt(history(count, lost))
        assert deal.places == tuple(range(number * batch, (number + 1) * batch))
        assert deal.numel == batch
        sampler = sampler.counted(deal)


def test_with_a_batch_per_member_what_the_lost_had_comes_first_in_the_next_step() -> None:
    sampler = Sampler(GlobalOrder(100), 2, per_member=True)
    deal = sampler.dealt([["a", "b", "c"], ["a", "c"]])
    assert deal.shares == (("a", (0, 1)), ("c", (4, 5)))
    sampler = sampler.counted(deal)
    assert sampler.where == (1, 6, 2, 3)
    assert sampler.deal(["a", "c"]).shares == (("a", (2, 3)), ("c", (6, 7)))


def test_where_all_that_had_a_share_are_lost_who_came_in_the_step_is_dealt_it_anew() -> None:
    deal = Sampler(GlobalOrder(100), 2, per_member=True).dealt([["a"], ["a", "b"], ["b"]])
    assert deal.shares == (("b", (0, 1)),) and deal.dropped == ()


@given(STEPS, st.booleans())
def test_another_goes_on_from_where_one_is(steps: list[tuple[int, list[int]]], per_member: bool) -> None:
    fresh = sampler = Sampler(GlobalOrder(100), 3, per_member)
    for count, lost in steps:
        sampler = sampler.counted(sampler.dealt(history(count, lost)))
    assert fresh.at(sampler.where) == fresh.resumed(sampler.position) == sampler


def test_shares_are_as_equal_as_can_be_also_those_of_the_lost() -> None:
    deal = Sampler(GlobalOrder(100), 10).deal(["a", "b", "c"])
    assert [len(share) for _, share in deal.shares] == [3, 3, 4]
    again = deal.again(["a", "b"])
    assert again.share("a") == (0, 1, 2, 6, 7) and again.share("b") == (3, 4, 5, 8, 9)


def test_what_cannot_be_dealt_is_an_error_that_says_why() -> None:
    sampler = Sampler(GlobalOrder(10), 4)
    deal = sampler.deal(["a"])
    with pytest.raises(UsageError, match="the next is 1"):
        sampler.counted(deal).counted(deal)
    with pytest.raises(UsageError, match="at least one member"):
        sampler.deal([])
    with pytest.raises(UsageError, match="nobody is left"):
        deal.again([])
    with pytest.raises(UsageError, match="numel must be"):
        GlobalOrder(0)
    for where in [(3,), (-1, 4), (1, 4, 4), (1, 4, -1)]:
        with pytest.raises(DataError, match="nowhere in samples"):
            sampler.at(where)
    each = Sampler(GlobalOrder(10), 4, per_member=True)
    with pytest.raises(UsageError, match=r"of \{'samples': 10, 'seed': 0, 'batch': 4\}.*'per_member': 4"):
        each.resumed(sampler.position)
    with pytest.raises(UsageError, match="batch must be"):
        Sampler(GlobalOrder(1), 0)


@given(st.integers(1, 20), st.integers(1, 5), st.integers(1, 5), st.integers(0, 4))
def test_a_step_that_repeats_has_the_samples_of_the_last_whoever_is_there(
    batch: int, before: int, after: int, times: int
) -> None:
    sampler = Sampler(GlobalOrder(30), batch).counted(Sampler(GlobalOrder(30), batch).deal(["x"]))
    first = sampler.deal([str(member) for member in range(before)])
    now = sampler.counted(first)
    for _ in range(times):
        again = replace(now, repeats=True).deal([str(member) for member in range(after)])
        assert again.places == first.places
        now = replace(now, repeats=True).counted(again)
    assert now.step == 2 + times and now.cursor == sampler.counted(first).cursor and not now.repeats
