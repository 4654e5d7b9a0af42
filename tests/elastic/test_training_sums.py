"""What members keep of a codec while others come and go, and sums that a loss has broken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tweed.aggregate import Mean
from tweed.compress import ErrorFeedback, LowRank, Spec, TopK
from tweed.elastic.training.sums import PackedSums, carry
from tweed.exchange.bucket import Bucket, GradientBucket
from tweed.exchange.checkpoint import stored
from tweed.exchange.communicator import Stats
from tweed.exchange.owners import Owners
from tweed.exchange.transfers import BufferState


def kept_by(members: int, *, replies: bool, seed: int) -> list[BufferState]:
    """What each of so many members keeps of a buffer, drawn."""
    memory, spec = ErrorFeedback(TopK(0.25)), Spec(((200,),))
    found, generator = [], torch.Generator().manual_seed(seed)
    for rank in range(members):
        state = BufferState.start(memory, spec, torch.zeros(200), Owners(rank, members, Mean()))
        state.state.error.normal_(generator=generator)
        if replies:
            mine = state.owners.mine(state.mean)
            state.replies["main"] = (None, torch.randn(mine.shape, generator=generator))
        found.append(state)
    return found


def unsent(kept: Sequence[BufferState]) -> Tensor:
    """What all of it still adds to means, each place."""
    total = torch.zeros(200)
    for one in kept:
        total += one.state.error / len(kept)
        for _, error in one.replies.values():
            one.owners.mine(total).add_(error)
    return total


@given(st.integers(1, 6), st.integers(0, 3), st.booleans(), st.integers(0, 2**31))
def test_what_is_unsent_counts_as_much_among_more_members(
    members: int, more: int, replies: bool, seed: int
) -> None:
    before = kept_by(members, replies=replies, seed=seed)
    after = []
    for rank in range(members + more):
        owners = Owners(rank, members + more, Mean())
        fresh = BufferState.start(before[0].memory, Spec(((200,),)), torch.zeros(200), owners)
        if rank < members:
            carry(fresh, stored(before[rank]), before[rank].owners)
        after.append(fresh)
    assert torch.allclose(unsent(after), unsent(before), rtol=0, atol=1e-5)


@pytest.mark.parametrize("codec", [TopK(0.25), LowRank(1)])
def test_a_sum_that_a_loss_has_broken_is_formed_of_what_was_kept_before_it(codec: Any) -> None:
    """One member, whose group breaks when its packets have left: at another attempt the same comes out."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    generator = torch.Generator().manual_seed(2)
    given = [torch.cat([torch.randn(48, generator=generator), torch.ones(1)]) for _ in range(4)]

    def sums() -> PackedSums:
        bucket = GradientBucket(["w"], Bucket(torch.empty(48), [torch.empty(8, 6)]))
        return PackedSums(ErrorFeedback(codec), [bucket], Stats())

    try:
        whole, broken, group = sums(), sums(), dist.distributed_c10d._get_default_group()
        expected = [whole(contribution, 1, group, step, 1) for step, contribution in enumerate(given)]
        for step, contribution in enumerate(given):
            broken(contribution, 1, group, step, step)
            found = broken(contribution, 1, group, step, step + 1)
            assert torch.equal(found, expected[step]), step
    finally:
        dist.destroy_process_group()
