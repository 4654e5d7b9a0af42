"""What the network loses of packets: nothing is destroyed, and only what was delivered counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.compress.group import Group
from tweed.aggregate import Mean, Median, Phocas, TrimmedMean
from tweed.compress import (
    Chain,
    Codec,
    Direct,
    ErrorFeedback,
    ErrorReset,
    Half,
    Identity,
    LazyAggregation,
    LowRank,
    Memory,
    Quantise,
    RandomBlocks,
    RandomK,
    Sign,
    Spec,
    TopK,
)
from tweed.errors import UsageError
from tweed.exchange.owners import Owners
from tweed.simulate.exchanges import PacketLoss

SPEC, RANKS = Spec(((20, 30), (72,))), 3
CODECS: list[Codec] = [
    Identity(),
    Identity(by_ranges=True),
    Half(),
    TopK(0.3),
    RandomK(0.4),
    RandomBlocks(2, block=16),
    Sign(32),
    Quantise(4, 64, nearest=True),
    Quantise(3, 100, nearest=True),
    Chain(TopK(0.5), Quantise(8, 64, nearest=True)),
    Chain(TopK(0.2), Sign(32), "bitmap"),
    LowRank(2),
]
owners = st.sampled_from([None, 0, 1, 2]).map(lambda server: Owners(0, RANKS, Mean(), server))
losses = st.builds(PacketLoss, st.floats(0, 1), st.integers(0, 2**32), st.sampled_from([8, 40, 400]))


def contributions(step: int) -> list[Tensor]:
    """Small whole numbers, so that plain sums are exact."""
    chance = torch.Generator().manual_seed(step)
    return [torch.randint(-9, 9, (SPEC.numel,), generator=chance).float() for _ in range(RANKS)]


def kept(group: Group) -> Tensor:
    """What ranks still have to send, all together."""
    total = torch.zeros(SPEC.numel)
    for buffer in group.buffers:
        total += sum(buffer.lost.values(), start=torch.zeros(SPEC.numel))
        total += getattr(buffer.state, "error", 0)
        for _, error in buffer.replies.values():  # of averages, that owners have compressed too
            if error is not None:
                buffer.owners.mine(total).add_(error, alpha=buffer.owners.contributors)
    return total


def applied_and_given(memory: Memory[Any], by: Owners, loss: PacketLoss) -> tuple[Tensor, Tensor, Group]:
    """Sums over ranks and steps: what averages came to, and what was contributed."""
    group = Group(memory, SPEC, RANKS, by, loss)
    applied, given_sum = torch.zeros(SPEC.numel), torch.zeros(SPEC.numel)
    for step in range(4):
        values = contributions(step)
        if by.server is not None:
            values[by.server].zero_()
        updates = group.exchange(values)
        assert all(torch.equal(update.delta, updates[0].delta) for update in updates)
        applied += updates[0].delta * by.contributors
        given_sum += sum(values, start=torch.zeros(SPEC.numel))
    return applied, given_sum, group


@pytest.mark.parametrize("codec", CODECS, ids=repr)
@given(by=owners, loss=losses)
def test_what_is_lost_is_sent_later(codec: Codec, by: Owners, loss: PacketLoss) -> None:
    applied, total, group = applied_and_given(ErrorFeedback(codec), by, loss)
    torch.testing.assert_close(applied + kept(group), total, rtol=1e-4, atol=1e-3)
    if by.server is not None:
        assert not group.buffers[by.server].state.error.any()


@pytest.mark.parametrize("codec", [Identity(), Identity(by_ranges=True)], ids=repr)
@given(by=owners, loss=losses)
def test_where_a_memory_keeps_nothing_the_exchange_does(codec: Codec, by: Owners, loss: PacketLoss) -> None:
    applied, total, group = applied_and_given(Direct(codec), by, loss)
    torch.testing.assert_close(applied + kept(group), total, rtol=1e-5, atol=1e-4)
    assert (loss.share < 1) or by.server is None or not applied.any()


@given(by=owners, loss=losses)
def test_differences_catch_up_once_nothing_is_lost(by: Owners, loss: PacketLoss) -> None:
    group = Group(LazyAggregation(Identity(by_ranges=True)), SPEC, RANKS, by, loss)
    values = contributions(0)
    if by.server is not None:
        values[by.server].zero_()
    group.exchange(values)
    group.network._loss = None
    updates = group.exchange(values)
    mean = sum(values, start=torch.zeros(SPEC.numel)) / by.contributors
    torch.testing.assert_close(updates[0].delta, mean, rtol=1e-5, atol=1e-5)


@given(loss=losses)
def test_the_mean_of_models_moves_as_if_nothing_were_lost(loss: PacketLoss) -> None:
    """`ErrorReset` applies to its own model what others do not get."""
    group = Group(ErrorReset(TopK(0.3), Identity(by_ranges=True), every=2), SPEC, RANKS, loss=loss)
    moved, total = torch.zeros(SPEC.numel), torch.zeros(SPEC.numel)
    for step in range(4):
        values = contributions(step)
        total += sum(values, start=torch.zeros(SPEC.numel))
        moved += sum((update.delta for update in group.exchange(values)), start=torch.zeros(SPEC.numel))
    torch.testing.assert_close(moved, total, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("aggregate", [Mean(), Median(), TrimmedMean(0.3), Phocas(0.34)], ids=repr)
@pytest.mark.parametrize("codec", [Identity(by_ranges=True), TopK(1.0), Quantise(8, 64)], ids=repr)
@given(server=st.sampled_from([None, 1]), loss=losses)
def test_only_what_was_delivered_counts(
    codec: Codec, aggregate: Any, server: int | None, loss: PacketLoss
) -> None:
    """Where all send the same, that is the average of any that came; where none came it is zero."""
    # one that sees each contribution alone always learns what is missing: a zero would be a value
    by = Owners(0, RANKS, aggregate, server, by_delivered=aggregate.in_network == "mean")
    [value, *_] = contributions(0)
    alone = Group(Direct(codec), SPEC, 1).exchange([value])[0].delta
    group = Group(Direct(codec), SPEC, RANKS, by, loss)
    delta = group.exchange([value] * RANKS)[0].delta
    if isinstance(codec, Quantise):  # each rank draws its own rounding
        assert ((delta == 0) | ((delta - value).abs() <= 1)).all()
    else:
        assert (torch.isclose(delta, alone, rtol=1e-6) | (delta == 0)).all()


def test_a_share_that_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="no share of datagrams"):
        PacketLoss(1.5)
