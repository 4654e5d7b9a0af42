"""Which samples a step takes, whoever is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.data.sampler import Deal, GlobalOrder, Sampler
from tweed.errors import UsageError

#: Per step: how many members there are, and who of them are lost one after the other, by place.
STEPS = st.lists(st.tuples(st.integers(1, 6), st.lists(st.integers(0, 5), max_size=4)), max_size=12)


def after_losses(deal: Deal, members: list[str], lost: list[int], later: bool) -> Deal:
    for place in lost:
        if len(members) > 1:
            members = [member for member in members if member != members[place % len(members)]]
            deal = deal.without(members) if later else deal.again(members)
    return deal


@given(STEPS, st.integers(1, 30), st.integers(1, 40), st.booleans())
def test_each_sample_is_taken_once_per_pass_whoever_is_lost(
    steps: list[tuple[int, list[int]]], batch: int, numel: int, per_member: bool
) -> None:
    sampler, taken = Sampler(GlobalOrder(numel), batch, per_member), list[int]()
    for count, lost in steps:
        members = [f"member {number}" for number in range(count)]
        deal = after_losses(sampler.deal(members), members, lost, later=per_member)
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
        members = [f"member {place}" for place in range(count)]
        deal = after_losses(sampler.deal(members), members, lost, later=False)
        assert deal.places == tuple(range(number * batch, (number + 1) * batch))
        sampler = sampler.counted(deal)


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
    with pytest.raises(UsageError, match="batch must be"):
        Sampler(GlobalOrder(1), 0)
