"""What one member does about a step. `tests/simulate/test_elastic.py` walks it while members die and join."""

from __future__ import annotations

from itertools import islice

import pytest
import torch
from torch import Tensor

from tweed.data.sampler import GlobalOrder, Sampler
from tweed.errors import TweedError
from tweed.exchange.commit import SumAnew, Take
from tweed.exchange.member import Member

NAMES = ("a", "b", "c")


def sampler(batch: int = 6) -> Sampler:
    return Sampler(GlobalOrder(12, seed=3), batch)


def entered(members: list[Member]) -> Take | SumAnew:
    """All of these enter an epoch together."""
    standings = {rank: member.standing(cut_off=False) for rank, member in enumerate(members)}
    plans = [member.enter([one.key for one in members], standings) for member in members]
    assert all(plan == plans[0] for plan in plans)
    return plans[0]


def founders(batch: int = 6) -> list[Member]:
    members = [Member(name, sampler(batch)) for name in NAMES]
    entered(members)
    return members


def contribute(member: Member, dtype: torch.dtype = torch.float64) -> list[int]:
    """The sum of its samples' numbers."""
    samples = member.samples()
    assert samples is not None
    member.contribute(torch.tensor([float(sum(samples))], dtype=dtype))
    return samples


def total(members: list[Member]) -> Tensor:
    return torch.stack([member.addend() for member in members]).sum(0)


def test_a_step_is_the_mean_over_its_samples() -> None:
    members = founders()
    samples = [sample for member in members for sample in contribute(member)]
    assert all(member.samples() is None for member in members)
    found = total(members)
    for member in members:
        member.summed(found)
        assert member.commit.result == sum(samples) / 6 and member.counted == 1


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
    assert left[0].counted == 1


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
    members[1].take(result.clone())
    assert members[1].deal == members[0].deal


def test_a_joiner_contributes_from_the_step_that_the_others_are_at() -> None:
    members = founders()
    for member in members:
        contribute(member)
    found = total(members)
    for member in members:
        member.summed(found)
    joiner = Member("d", members[0].sampler, members[0].commit.result)
    for _ in range(2):  # while the joiner is on its way
        for member in members:
            contribute(member)
        found = total(members)
        for member in members:
            member.summed(found)
    together = [*members, joiner]
    entered(together)
    assert joiner.behind and joiner.standing(cut_off=True).cut_off
    told = {rank: member.standing(cut_off=member is joiner) for rank, member in enumerate(together)}
    assert joiner.cut_off(told) == (0, (3,))
    for _ in range(2):
        assert members[0].commit.result is not None
        joiner.take(members[0].commit.result.clone())
    assert not joiner.behind and joiner.deal == members[0].deal
    # With as many steps as the others, until it has the whole state, which a loss may break.
    again = joiner.standing(cut_off=True)
    assert again.behind and again.cut_off and again.position == members[0].standing(cut_off=False).position
    assert {sample for member in together for sample in contribute(member)}
    joiner.summed(total(together))


def test_other_samples_in_the_sum_than_were_dealt_are_an_error() -> None:
    members = founders()
    for member in members:
        contribute(member)
    with pytest.raises(TweedError, match="step 0 sums 4 samples of 6"):
        members[0].summed(total(members[:2]))


def test_a_share_may_come_in_several_contributions() -> None:
    one = founders()[0]
    ahead = list(islice(one.ahead, 2))
    share = one.samples()
    assert share == ahead[0] and len(share) == 2
    one.contribute(torch.ones(3), 1)
    assert one.samples() == share[1:] == next(iter(one.ahead))
    one.contribute(torch.ones(3), 1)
    assert one.samples() is None and one.addend().tolist() == [2, 2, 2, 2]
    one.summed(torch.tensor([6.0, 6, 6, 6]))
    assert next(iter(one.ahead)) == ahead[1]
