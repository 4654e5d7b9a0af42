"""What was said last counts: the memory of LAG, walked by several ranks side by side."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.compress.group import Group
from tweed.compress import (
    Direct,
    ErrorFeedback,
    Identity,
    LazyAggregation,
    MeasuresNorm,
    Quantise,
    Spec,
    TopK,
)
from tweed.errors import StrategyError

SPEC = Spec(((50,), (10, 14)))
RANKS = 3


def values(seed: int) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(SPEC.numel, generator=random) for _ in range(RANKS)]


@pytest.mark.parametrize("by_ranges", [False, True])
def test_a_silent_rank_counts_with_what_it_said_last(by_ranges: bool) -> None:
    together = Group(LazyAggregation(Identity(by_ranges)), SPEC, RANKS)
    first, second = values(1), values(2)
    together.exchange(first)
    placed = together.exchange(second, silent=[False, True, True])
    for one in placed:
        torch.testing.assert_close(one.delta, (second[0] + first[1] + first[2]) / RANKS)


def test_who_is_silent_sends_nothing_of_its_own() -> None:
    together = Group(LazyAggregation(Identity(by_ranges=True)), SPEC, RANKS)
    together.exchange(values(1))
    loud = together.traffic.up_bytes
    together.exchange(values(2), silent=[False, True, True])
    assert together.traffic.up_bytes == pytest.approx(loud + loud / RANKS)
    before = together.traffic.bytes
    together.exchange(values(3), silent=[True] * RANKS)
    assert together.traffic.bytes - before <= 16 * RANKS  # each owner says that its range has no news


@pytest.mark.parametrize("compressor", [TopK(0.1), Quantise(8, both_ways=False)], ids=repr)
def test_what_a_difference_leaves_out_is_in_the_next(compressor: object) -> None:
    together = Group(LazyAggregation(compressor), SPEC, RANKS)  # type: ignore[arg-type]
    wanted = values(3)
    for _ in range(40):
        placed = together.exchange(wanted)
    torch.testing.assert_close(placed[0].delta, sum(wanted) / RANKS, atol=1e-3, rtol=0)


def test_a_lossy_way_back_is_refused() -> None:
    with pytest.raises(StrategyError, match="both_ways=False"):
        LazyAggregation(Quantise(8))


@pytest.mark.parametrize("make", [Direct, ErrorFeedback, LazyAggregation])
def test_what_is_pending_is_the_squared_length_of_what_would_be_said(make: type) -> None:
    memory = make(TopK(0.1))
    assert isinstance(memory, MeasuresNorm)
    together = Group(memory, SPEC, RANKS)
    state = together.buffers[0].state
    assert memory.pending(torch.full((SPEC.numel,), 2.0), state) == 4.0 * SPEC.numel
    wanted = values(4)
    together.exchange(wanted)
    expected = {Direct: wanted[0], ErrorFeedback: wanted[0], LazyAggregation: wanted[0]}[make].square().sum()
    state = together.buffers[0].state
    left = memory.pending(wanted[0] if make is not ErrorFeedback else torch.zeros(SPEC.numel), state)
    assert left <= float(expected) * (1 + 1e-6)
    if make is not Direct:
        assert left < float(expected)


def test_a_weight_makes_up_for_those_who_are_not_drawn() -> None:
    together = Group(Direct(Identity(), weight=RANKS), SPEC, RANKS)
    said = values(5)
    placed = together.exchange(said, silent=[True, False, True])
    torch.testing.assert_close(placed[0].delta, said[1])
