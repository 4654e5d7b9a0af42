"""What one member does about a step. `tests/simulate/test_elastic.py` walks it while members die and join."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor

from tweed.data.sampler import GlobalOrder, Sampler
from tweed.elastic.commit import SumAnew, Take
from tweed.elastic.member import Member
from tweed.errors import ShapeMismatch, TweedError

NAMES = ("a", "b", "c")


def sampler(batch: int = 6, *, per_member: bool = False) -> Sampler:
    return Sampler(GlobalOrder(12, seed=3), batch, per_member)


def entered(members: list[Member]) -> Take | SumAnew:
    """All of these enter an epoch together."""
    standings = {rank: member.standing(cut_off=False) for rank, member in enumerate(members)}
    plans = [member.enter([one.key for one in members], standings) for member in members]
    assert all(plan == plans[0] for plan in plans)
    return plans[0]


def founders(batch: int = 6, *, per_member: bool = False) -> list[Member]:
    members = [Member(name, sampler(batch, per_member=per_member)) for name in NAMES]
    entered(members)
    return members


def contribute(member: Member, dtype: torch.dtype = torch.float64) -> list[int]:
    """The sum of its samples' numbers."""
    samples = member.samples()
    assert samples is not None
    member.contribute(torch.tensor([float(sum(samples))], dtype=dtype))
    return samples


def total(members: list[Member]) -> Tensor:
    values, samples = zip(*(member.contribution for member in members), strict=True)
    summed = torch.stack(values).sum(0)
    return torch.cat([summed, summed.new_tensor([sum(samples)])])


def test_a_step_is_the_mean_over_its_samples() -> None:
    members = founders()
    samples = [sample for member in members for sample in contribute(member)]
    assert all(member.samples() is None for member in members)
    found = total(members)
    for member in members:
        member.summed(found.clone())
        assert member.commit.result == sum(samples) / 6 and member.steps_done == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_types_are_summed_in_float32(dtype: torch.dtype) -> None:
    """The count of samples, 1000, has no room in either type's sum."""
    members = [Member(name, sampler(1000)) for name in NAMES]
    entered(members)
    for member in members:
        samples = member.samples()
        assert samples is not None
        member.contribute(torch.full([2], float(len(samples)), dtype=dtype))
    found = total(members)
    assert found.dtype == torch.float32
    members[0].summed(found)


def test_samples_of_a_lost_member_are_dealt_again_and_nothing_is_computed_twice() -> None:
    members = founders()
    before = [contribute(member) for member in members]
    left = [members[0], members[2]]
    assert entered(left) == SumAnew(0, (0, 1))
    again = [contribute(member) for member in left]
    assert sorted(again[0] + again[1]) == sorted(before[1])
    left[0].summed(total(left))
    assert left[0].steps_done == 1


def test_who_lacks_the_last_step_takes_it_and_deals_the_next_as_the_others_do() -> None:
    members = founders()
    for member in members:
        contribute(member)
    members[0].summed(total(members))
    contribute(members[0])
    left = members[:2]
    plan = entered(left)
    assert plan == Take(0, 0, (1,))
    result = members[0].commit.result
    assert result is not None
    members[1].take(result.clone(), members[0].sampler.where)
    assert members[1].deal == members[0].deal


def test_where_who_has_the_last_step_is_lost_before_it_gives_it_the_step_is_dealt_as_it_was() -> None:
    """The step of a, b and c goes on without c, so b has computed a part of c's; a counts it, and is lost."""
    members = founders()
    before = [contribute(member) for member in members]
    a, b = left = members[:2]
    entered(left)
    again = [contribute(member) for member in left]
    a.summed(total(left))
    joiner = Member("d", a.sampler, a.commit.result)
    standings = {rank: one.standing(cut_off=False) for rank, one in enumerate([a, b, joiner])}
    assert [one.enter(["a", "b", "d"], standings) for one in (a, b)] == [Take(0, 0, (1,))] * 2
    entered([b])
    last = contribute(b)
    assert sorted(last) == sorted(before[0] + again[0])
    b.summed(total([b]))
    assert b.steps_done == 1 and b.sampler == a.sampler


def test_with_a_batch_per_member_the_step_counts_without_samples_of_the_lost_which_come_next() -> None:
    members = founders(2, per_member=True)
    before = [contribute(member) for member in members]
    a, c = left = [members[0], members[2]]
    assert entered(left) == SumAnew(0, (0, 1))
    assert a.samples() is None and c.samples() is None
    a.summed(total(left))
    assert a.commit.result == sum(before[0] + before[2]) / 4
    assert contribute(a) == before[1], "what the lost one had comes first"
    assert entered(left) == Take(0, 0, (1,))
    assert a.commit.result is not None
    c.take(a.commit.result.clone(), a.sampler.where)
    assert c.sampler == a.sampler and c.deal == a.deal


def test_a_joiner_contributes_from_the_step_that_the_others_are_at() -> None:
    members = founders()
    for member in members:
        contribute(member)
    found = total(members)
    for member in members:
        member.summed(found.clone())
    joiner, feed = Member("d", members[0].sampler, members[0].commit.result), list[tuple[Tensor, Any]]()
    for _ in range(2):  # while the joiner is on its way
        for member in members:
            contribute(member)
        found = total(members)
        for member in members:
            member.summed(found.clone())
        assert members[0].commit.result is not None
        feed.append((members[0].commit.result.clone(), members[0].sampler.where))
    together = [*members, joiner]
    entered(together)
    assert joiner.behind and joiner.standing(cut_off=True).cut_off
    standings = {rank: member.standing(cut_off=member is joiner) for rank, member in enumerate(together)}
    assert joiner.cut_off(standings) == (0, (3,))
    for result, where in feed:
        joiner.take(result, where)
    assert not joiner.behind and joiner.deal == members[0].deal
    # With as many steps as the others, until it has the whole state, which a loss may break.
    again = joiner.standing(cut_off=True)
    assert again.behind and again.cut_off and again.position == members[0].standing(cut_off=False).position
    assert {sample for member in together for sample in contribute(member)}
    joiner.summed(total(together))


@pytest.mark.parametrize("per_member", [False, True])
def test_who_is_let_in_without_a_state_deals_as_the_others_once_it_has_theirs(per_member: bool) -> None:
    members = founders(per_member=per_member)
    for member in members:
        contribute(member)
    found = total(members)
    for member in members:
        member.summed(found.clone())
    for member in members:  # one of them is lost within this step, and one that has no step comes
        contribute(member)
    first, second, _ = members
    joiner = Member("d", sampler(per_member=per_member))
    together = [first, second, joiner]
    standings = {rank: one.standing(cut_off=one is joiner) for rank, one in enumerate(together)}
    for member in together:
        member.enter([one.key for one in together], standings)
    assert first.cut_off(standings) == (0, (2,))
    joiner.copied(first.sampler, first.commit.result)
    for member in together:
        while member.samples() is not None:
            contribute(member)
    found = total(together)
    for member in together:
        member.summed(found.clone())
    assert len({tuple(member.sampler.where) for member in together}) == 1


def test_where_all_that_could_feed_a_joiner_are_lost_it_says_so() -> None:
    joiner = Member("d", sampler(), result=torch.zeros(1, dtype=torch.float64))
    with pytest.raises(TweedError, match="go on from a checkpoint"):
        entered([joiner])


def test_another_number_of_values_than_the_step_before_ends_this_process_alone() -> None:
    members = founders()
    for member in members:
        contribute(member)
    found = total(members)
    for member in members:
        member.summed(found.clone())
    assert members[0].samples() is not None
    with pytest.raises(
        ShapeMismatch, match="contributes 2 values to step 1, and members had 1 of the step before"
    ):
        members[0].contribute(torch.ones(2))


def test_other_samples_in_the_sum_than_were_dealt_are_an_error() -> None:
    members = founders()
    for member in members:
        contribute(member)
    with pytest.raises(TweedError, match="step 0 is over 4 samples"):
        members[0].summed(total(members[:2]))


def test_a_share_may_come_in_several_contributions() -> None:
    one = founders()[0]
    ahead = list(islice(one.ahead, 2))
    share = one.samples()
    assert share == ahead[0] and len(share) == 2
    one.contribute(torch.ones(3), 1)
    assert one.samples() == share[1:] == next(iter(one.ahead))
    one.contribute(torch.ones(3), 1)
    assert one.samples() is None and one.contribution[1] == 2 and one.contribution[0].tolist() == [2, 2, 2]
    one.summed(torch.tensor([6.0, 6, 6, 6]))
    assert next(iter(one.ahead)) == ahead[1]
