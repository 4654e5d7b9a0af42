"""How much of a message goes before its receiver knows the length: both ends agree, little is wasted."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.compress.table import gaussian
from tweed.aggregate import Mean
from tweed.compress import Chain, Codec, Quantise, Spec, TopK, Turn
from tweed.exchange.eager import EagerLimits, eager_bytes
from tweed.exchange.owners import Owners

lengths = st.integers(0, 10**7)
SIZE = 3
tables = st.lists(st.lists(lengths, min_size=SIZE, max_size=SIZE), min_size=SIZE, max_size=SIZE)


@given(st.lists(tables, max_size=12))
def test_both_ends_of_a_pair_agree_whatever_crosses(exchanges: list[list[list[int]]]) -> None:
    ranks = [EagerLimits(SIZE) for _ in range(SIZE)]
    for sent in exchanges:  # by sender and receiver
        for rank, limits in enumerate(ranks):
            limits.note(sent[rank], [row[rank] for row in sent])
        for rank, limits in enumerate(ranks):
            assert limits.sent() == [other.received()[rank] for other in ranks]


@given(st.lists(lengths, max_size=8))
def test_a_limit_is_never_far_above_what_was_sent(kept: list[int]) -> None:
    low, high = min(kept, default=0), max(kept, default=0)
    assert 0 <= eager_bytes(kept) <= min(high, 1.25 * low + 64)


@given(lengths, st.integers(2, 8))
def test_what_always_has_one_length_is_never_padded_and_has_no_rest(length: int, times: int) -> None:
    assert eager_bytes([length] * times) == length


def wasted(exchanges: list[int]) -> tuple[int, int]:
    """Bytes of padding, and how many messages had a rest, of messages of these lengths between one pair."""
    limits, padding, rests = EagerLimits(1), 0, 0
    for length in exchanges:
        [eager] = limits.sent()
        padding += max(0, eager - length)
        rests += length > eager
        limits.note([length], [length])
    return padding, rests


def lengths_of(codec: Codec, count: int, numel: int = 50_000) -> list[list[int]]:
    """Of packets for each of four owners, one after the other."""
    spec, ends = Spec(((numel,),)), Owners(0, 4, Mean()).bounds(numel)
    found = []
    for step in range(count):
        packet, _ = codec.encode(gaussian(spec, step), codec.start(spec), Turn(spec, step))
        found.append([len(part.pack()) for part in packet.cut(ends)])
    return [list(of_owner) for of_owner in zip(*found, strict=True)]


@pytest.mark.parametrize("codec", [TopK(0.01), TopK(0.1), Chain(TopK(0.03), Quantise(4, 64))], ids=repr)
def test_entries_are_padded_by_at_most_15_percent_and_rarely_have_a_rest(codec: Codec) -> None:
    for exchanges in lengths_of(codec, 60):
        padding, rests = wasted(exchanges)
        assert padding <= 0.15 * sum(exchanges)
        assert rests <= len(exchanges) / 3


@pytest.mark.parametrize("silent", [2, 3, 5, 10, 30])
def test_where_ranks_are_silent_now_and_then_little_is_padded(silent: int) -> None:
    """At random, once in `silent` exchanges, or all but once."""
    draws = torch.randint(silent, (2000,), generator=torch.Generator().manual_seed(silent)).tolist()
    for exchanges in (
        [0 if draw == 0 else 5000 for draw in draws],
        [5000 if draw == 0 else 0 for draw in draws],
    ):
        padding, _ = wasted(exchanges)
        assert padding <= 0.05 * sum(exchanges)
