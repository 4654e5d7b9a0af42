"""Partitions: every sample goes to exactly one rank, and the seed decides all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.data import Partition, deal
from tweed.errors import UsageError

partitions = st.sampled_from(["iid", "by_label", "dirichlet:0.01", "dirichlet:0.3", "dirichlet:100"])


@st.composite
def hands(draw: st.DrawFn) -> tuple[np.ndarray, int, Partition, int]:
    labels = draw(st.lists(st.integers(0, 5), min_size=1, max_size=80))
    ranks = draw(st.integers(1, min(9, len(labels))))
    return np.array(labels), ranks, Partition.parse(draw(partitions)), draw(st.integers(0, 2**32))


@given(hands())
def test_every_sample_goes_to_exactly_one_rank(hand: tuple[np.ndarray, int, Partition, int]) -> None:
    parts = deal(*hand)
    assert len(parts) == hand[1]
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(hand[0])))


@given(hands())
def test_no_rank_is_left_empty(hand: tuple[np.ndarray, int, Partition, int]) -> None:
    assert min(len(part) for part in deal(*hand)) > 0


@given(hands())
def test_same_seed_same_hands(hand: tuple[np.ndarray, int, Partition, int]) -> None:
    for first, second in zip(deal(*hand), deal(*hand), strict=True):
        np.testing.assert_array_equal(first, second)


def test_another_seed_deals_otherwise() -> None:
    labels = np.zeros(100, dtype=np.int64)
    assert not np.array_equal(deal(labels, 2, Partition(), 1)[0], deal(labels, 2, Partition(), 2)[0])


def test_iid_parts_differ_by_one_at_most() -> None:
    sizes = [len(part) for part in deal(np.zeros(103, dtype=np.int64), 4, Partition(), 0)]
    assert max(sizes) - min(sizes) <= 1


def test_by_label_gives_each_rank_few_labels() -> None:
    labels = np.tile(np.arange(4), 25)
    assert [np.unique(labels[part]).tolist() for part in deal(labels, 4, Partition("by_label"), 0)] == [
        [0],
        [1],
        [2],
        [3],
    ]


def test_shards_give_each_rank_so_many_labels_at_most() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 60))
    parts = deal(labels, 30, Partition.parse("shards:2"), 0)
    assert sorted(np.concatenate(parts).tolist()) == list(range(600))
    assert {len(part) for part in parts} == {20}
    assert max(len(np.unique(labels[part])) for part in parts) == 2
    with pytest.raises(UsageError, match="cannot cut 600 samples into 800 shards, 2 for each rank"):
        deal(labels, 400, Partition.parse("shards:2"), 0)


def test_small_alpha_is_less_even_than_large() -> None:
    labels = np.repeat(np.arange(10), 100)

    def spread(alpha: float) -> float:
        parts = deal(labels, 4, Partition("dirichlet", alpha), 3)
        return float(np.std([np.bincount(labels[part], minlength=10) for part in parts]))

    assert spread(0.1) > 5 * spread(1000.0)


@pytest.mark.parametrize("text", ["", "iid:1", "dirichlet", "dirichlet:", "dirichlet:0", "shards:1.5"])
def test_unknown_partition_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no partition"):
        Partition.parse(text)


@pytest.mark.parametrize("text", ["iid", "by_label", "dirichlet:0.3", "shards:2"])
def test_a_partition_prints_as_it_is_read(text: str) -> None:
    assert str(Partition.parse(text)) == text


@pytest.mark.parametrize("ranks", [0, 4])
def test_more_ranks_than_samples_are_refused(ranks: int) -> None:
    with pytest.raises(UsageError, match="cannot deal 3 samples"):
        deal(np.zeros(3, dtype=np.int64), ranks, Partition(), 0)
