"""What is lost is owed: nothing that a rank contributed is destroyed, or counted twice."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tweed.errors import UsageError
from tweed.exchange.bucket import Bucket, room
from tweed.exchange.losses import Losses, Residual, merged

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@dataclass
class Report:
    """A delivery."""

    sent_bytes: int = 0
    lost_bytes: int = 0
    by_rank: dict[int, tuple[int, int]] = field(default_factory=dict)
    lost: list[tuple[int, bytes]] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Network:
    """What the engine's group does: takes a buffer, loses ranges of it, tells of that."""

    whole: list[tuple[int, int]] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)

    def keep_whole(self, address: int, bytes: int) -> None:
        self.whole.append((address, bytes))

    def may_lose(self, address: int, bytes: int) -> None:
        pass

    def take_deliveries(self) -> list[Report]:
        taken, self.reports = self.reports, []
        return taken

    def carry(self, flat: Tensor, ranges: list[tuple[int, int]]) -> Tensor:
        """What arrives of `flat` without `ranges` of numbers."""
        arrived, width = flat.clone(), flat.element_size()
        lost = []
        for first, end in ranges:
            lost.append((flat.data_ptr() + first * width, as_bytes(flat[first:end])))
            arrived[first:end] = 0
        count = sum(len(values) for _, values in lost)
        size = flat.numel() * width
        self.reports.append(Report(size, count, {0: (size, count)}, lost))
        return arrived


def as_bytes(values: Tensor) -> bytes:
    return bytes(values.clone().view(torch.uint8).tolist())


def apart(places: list[int]) -> list[tuple[int, int]]:
    """Ranges that do not meet, from ends in any order."""
    ends = sorted(set(places))
    return list(zip(ends[::2], ends[1::2], strict=False))


@given(
    dtype=st.sampled_from(DTYPES),
    steps=st.lists(
        st.tuples(
            st.lists(st.integers(-8, 8), min_size=12, max_size=12),
            st.lists(st.integers(0, 12), max_size=8),
        ),
        max_size=8,
    ),
)
def test_what_is_applied_and_what_is_owed_is_what_was_contributed(
    dtype: torch.dtype, steps: list[tuple[list[int], list[int]]]
) -> None:
    network = Network()
    flat = torch.zeros(12, dtype=dtype)
    bucket = Bucket(flat, [torch.empty(3, 4, dtype=dtype)])
    losses = Losses(network, returned=True)
    losses.add(bucket)
    contributed, applied = torch.zeros(12, dtype=dtype), torch.zeros(12, dtype=dtype)
    for step, (values, places) in enumerate(steps):
        flat.copy_(torch.tensor(values, dtype=dtype))
        contributed += flat
        losses.add_residual(bucket)
        arrived = network.carry(flat, apart(places))
        flat.fill_(99)  # the sum of all ranks comes to the same place
        losses.end_exchange(step)
        applied += arrived
    [owed] = losses.state()
    assert torch.equal(applied + owed, contributed)  # whole numbers this small add without rounding


def test_a_range_of_another_bucket_is_refused() -> None:
    flat = torch.zeros(4)
    residual = Residual(Bucket(flat, [flat]))
    at, width = flat.data_ptr(), 4
    assert not residual.take_back(at - width, bytes(4))
    assert not residual.take_back(at + 3 * width, bytes(8))
    assert residual.take_back(at + 3 * width, bytes(4))
    network = Network(reports=[Report(lost=[(at, bytes(4))])])
    with pytest.raises(UsageError, match="in no bucket of this run"):
        Losses(network, returned=True).end_exchange(0)


def test_only_what_is_owed_of_a_tensor_counts_for_it() -> None:
    tensors = [torch.empty(2), torch.empty(3)]
    bucket = Bucket(torch.zeros(room(tensors, marked=True)), tensors, marked=True)
    network = Network()
    losses = Losses(network, returned=True)
    losses.add(bucket)
    bucket.flat.fill_(1)
    network.carry(bucket.flat, [(3, 4)])
    losses.end_exchange(0)
    assert [losses.has_residual(bucket, index) for index in (0, 1)] == [False, True]
    losses.add_residual(bucket)
    assert [losses.has_residual(bucket, index) for index in (0, 1)] == [False, False]


def test_marks_are_kept_whole() -> None:
    tensors = [torch.empty(2), torch.empty(3)]
    bucket = Bucket(torch.zeros(7), tensors, marked=True)
    network = Network()
    Losses(network, returned=False).add(bucket)
    assert network.whole == [(bucket.flat.data_ptr() + 5 * 4, 2 * 4)]


def test_what_is_not_to_be_returned_is_only_counted() -> None:
    flat = torch.ones(8)
    network = Network()
    losses = Losses(network, returned=False)
    bucket = Bucket(flat, [torch.empty(8)])
    losses.add(bucket)
    network.carry(flat, [(0, 2)])
    assert losses.end_exchange(5) == (32, 8)
    losses.add_residual(bucket)
    assert flat.tolist() == [1.0] * 8
    assert losses.state() == []
    assert losses.record[0].shares() == {0: 0.75}


def test_the_buckets_of_a_step_are_one_record() -> None:
    reports = [Report(by_rank={2: (10, 1), 1: (10, 0)}), Report(by_rank={1: (6, 2)}), Report()]
    assert merged(4, reports).by_rank == {1: (16, 2), 2: (10, 1)}
    assert merged(4, [Report(by_rank={3: (0, 0)})]).shares() == {3: 1.0}


def test_a_checkpoint_keeps_what_is_owed() -> None:
    network = Network()
    before, after = (Losses(network, returned=True) for _ in range(2))
    buckets = [Bucket(torch.ones(4), [torch.empty(4)]) for _ in range(2)]
    before.add(buckets[0])
    after.add(buckets[1])
    network.carry(buckets[0].flat, [(1, 3)])
    before.end_exchange(0)
    after.load(before.state())
    after.add_residual(buckets[1])
    assert buckets[1].flat.tolist() == [1, 2, 2, 1]
    with pytest.raises(UsageError, match="buckets of other sizes"):
        after.load([torch.zeros(5)])
