"""Flags in front of packets say what an all-reduce of flags says, and who raises has kept all."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tests.compress.table import gaussian
from tests.hooks.nets import on_each_backend
from tweed.compress import (
    Chain,
    Direct,
    ErrorFeedback,
    ErrorReset,
    Half,
    LazyAggregation,
    LocalResidual,
    Memory,
    Quantise,
    RandomK,
    Spec,
    StepAhead,
    Threshold,
    TopK,
)
from tweed.errors import UsageError
from tweed.exchange.bucket import Bucket
from tweed.exchange.communicator import Communicator, Stats
from tweed.exchange.compressed_buffers import CompressedBuffers
from tweed.exchange.finite import FiniteFlags, OwnFlags, all_reduced
from tweed.exchange.flagged import exchange_if_finite
from tweed.exchange.pending import wait_for
from tweed.strategy import Strategy
from tweed.testbed import run_ranks

SHAPES = ((20, 30), (200,))
SPEC = Spec(SHAPES)
CPU = torch.device("cpu")

MEMORIES: list[Memory[Any]] = [
    ErrorFeedback(TopK(0.1)), ErrorFeedback(Chain(TopK(0.2), Quantise(4, nearest=True), bidirectional=True)),
    ErrorFeedback(Threshold(0.1, lifespan=3)), ErrorReset(TopK(0.1), RandomK(0.3), 2), StepAhead(TopK(0.1)),
    LazyAggregation(TopK(0.1)), LocalResidual(TopK(0.1)), Direct(Quantise(4)), ErrorFeedback(Half()),
]  # fmt: skip

rows = st.lists(
    st.tuples(st.integers(0, 127), st.lists(st.integers(0, 2), min_size=3, max_size=3)), min_size=1
)


@given(rows)
def test_what_goes_in_front_says_who_is_not_finite(said: list[tuple[int, list[int]]]) -> None:
    ranks = [OwnFlags([flags[:1], flags[1:]], says, CPU) for says, flags in said]
    known = ranks[0].with_others([one.packed() for one in ranks])
    assert known.said == [says for says, _ in said]
    assert known.broken == [rank for rank, (_, flags) in enumerate(said) if 2 in flags]
    bad = [
        max((rank for rank, (_, flags) in enumerate(said) if flags[at] == 2), default=None) for at in range(3)
    ]
    assert [rank for of_bucket in known.bad for rank in of_bucket] == bad
    given_by_any = [any(flags[at] for _, flags in said) for at in range(3)]
    assert [one for of_bucket in known.given for one in of_bucket] == given_by_any


def both_ways(rank: int, size: int) -> bool:
    """Whether an all-reduce says the same."""
    own = OwnFlags([[rank % 3], [2 * (rank == 1), 0]], rank, CPU)
    others = [OwnFlags([[one % 3], [2 * (one == 1), 0]], one, CPU).packed() for one in range(size)]
    return own.with_others(others) == wait_for(all_reduced(own, Communicator(None, Strategy(), Stats())))


def test_an_all_reduce_says_the_same() -> None:
    assert run_ranks(both_ways, 4, backend="tweed") == [True] * 4


def updates_of(
    buffers: CompressedBuffers, rank: int, number: int, bad: bool, refused: bool
) -> list[Tensor] | None:
    """Of an exchange in which rank 1 has a value that is not finite, or says no."""
    values = [gaussian(SPEC, 10 * number + rank) for _ in buffers.specs]
    if bad and rank == 1:
        values[0][7] = math.nan
    buckets = [Bucket(value, [torch.empty(shape) for shape in SHAPES]) for value in values]
    own = OwnFlags.of(buckets, [[True, True]] * len(buckets), int(refused and rank == 1))

    def check(flags: FiniteFlags) -> None:
        if any(flags.said):
            raise UsageError("a rank said no")

    silent = rank == number % 3
    carried = buffers.carry_flags
    _, updates = wait_for(
        exchange_if_finite(buffers, own, values, lambda values: silent, check, carried=carried)
    )
    return None if updates is None else [update.delta.clone() for update in updates]


def trained(memory: Memory[Any], rank: int, disturbed: bool) -> tuple[list[Any], dict[str, Any]]:
    """Updates of four exchanges, and what is kept at the end; between them there may be some that fail."""
    like = [torch.empty(shape) for shape in SHAPES]
    buffers = CompressedBuffers(memory, [like, like], Communicator(None, Strategy(), Stats()))
    found = []
    for number in range(4):
        if disturbed:
            assert updates_of(buffers, rank, 100 + number, True, False) is None
            with pytest.raises(UsageError, match="said no"):
                updates_of(buffers, rank, 200 + number, number % 2 == 0, True)
        found.append(updates_of(buffers, rank, number, False, False))
    return found, buffers.state()


def leaves_traces(rank: int, size: int) -> list[str]:
    """Memories with which it made a difference that exchanges failed."""
    found = []
    for memory in MEMORIES:
        pairs = zip(
            *(tree_leaves(trained(memory, rank, disturbed)) for disturbed in (True, False)), strict=True
        )
        if not all(
            torch.equal(*pair) if isinstance(pair[0], Tensor) else pair[0] == pair[1] for pair in pairs
        ):
            found.append(repr(memory))
    return found


@on_each_backend
def test_an_exchange_that_some_rank_stops_leaves_no_trace(backend: str) -> None:
    assert run_ranks(leaves_traces, 3, backend=backend) == [[]] * 3
