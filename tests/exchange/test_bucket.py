"""Buckets: which tensors share one, and the views in it. One process, no group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tweed.exchange.bucket import Bucket, Item, assign, dense_strides, item, room

items = st.lists(st.builds(Item, st.integers(0, 60), st.sampled_from(["f32", "f64", "bf16"])), max_size=40)
limits = st.integers(1, 100)


@given(items=items, limit=limits, first=st.none() | limits)
def test_each_item_is_in_one_bucket_of_its_kind(items: list[Item], limit: int, first: int | None) -> None:
    buckets = assign(items, limit, first)
    assert sorted(index for bucket in buckets for index in bucket) == list(range(len(items)))
    assert all(len({items[index].kind for index in bucket}) == 1 for bucket in buckets)


@given(items=items, limit=limits, first=st.none() | limits)
def test_buckets_come_in_the_order_they_fill_in(items: list[Item], limit: int, first: int | None) -> None:
    buckets = assign(items, limit, first)
    assert all(bucket == sorted(bucket) for bucket in buckets)
    assert [bucket[-1] for bucket in buckets] == sorted(bucket[-1] for bucket in buckets)


@given(items=items, limit=limits)
def test_a_bucket_is_full_only_with_its_last_item(items: list[Item], limit: int) -> None:
    for bucket in assign(items, limit):
        assert sum(items[index].size_bytes for index in bucket[:-1]) < limit


def test_the_first_bucket_can_be_small() -> None:
    assert assign([Item(10, "f32")] * 6, limit_bytes=30, first_bytes=10) == [[0], [1, 2, 3], [4, 5]]


def test_kinds_fill_side_by_side() -> None:
    a, b = Item(10, "a"), Item(10, "b")
    assert assign([a, b, a, b, a], limit_bytes=20) == [[0, 2], [1, 3], [4]]


def test_nothing_gives_no_bucket() -> None:
    assert assign([], limit_bytes=1) == []


def test_an_item_is_a_tensors_size_and_kind() -> None:
    assert item(torch.zeros(3, dtype=torch.bfloat16)) == Item(6, (torch.bfloat16, torch.device("cpu")))


TENSORS = {
    "matrix": torch.zeros(3, 4),
    "transposed": torch.zeros(3, 4).t(),
    "scalar": torch.zeros(()),
    "empty": torch.zeros(0, 5),
    "channels last": torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "with gaps": torch.zeros(4, 6)[:, ::2],
    "expanded": torch.zeros(1, 3).expand(4, 3),
}


@pytest.mark.parametrize("tensor", TENSORS.values(), ids=TENSORS.keys())
def test_a_view_has_the_tensors_shape_and_no_gaps(tensor: Tensor) -> None:
    bucket = Bucket(torch.zeros(room([tensor, tensor])), [tensor, tensor])
    bucket.views[1].fill_(1)
    assert bucket.views[1].shape == tensor.shape
    assert bucket.flat.tolist() == [0.0] * tensor.numel() + [1.0] * tensor.numel()


def test_a_view_has_a_dense_tensors_strides() -> None:
    for name in ("matrix", "transposed", "channels last"):
        assert dense_strides(TENSORS[name]) == TENSORS[name].stride()


def test_marks_follow_the_views() -> None:
    tensors = [torch.zeros(2), torch.zeros(3)]
    bucket = Bucket(torch.zeros(room(tensors, marked=True)), tensors, marked=True)
    bucket.marks.copy_(torch.tensor([1.0, 2.0, 3.0]))
    assert bucket.flat.tolist() == [0, 0, 0, 0, 0, 1, 2, 3]
    assert Bucket(torch.zeros(5), tensors).marks.numel() == 0


def test_a_bucket_may_lie_within_a_larger_buffer() -> None:
    memory = torch.zeros(10)
    Bucket(memory[4:], [torch.zeros(2)]).views[0].fill_(1)
    assert memory.tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 0, 0]


#: Ways in which a program holds what it was given as a gradient.
HELD: dict[str, Callable[[Tensor], Any]] = {
    "itself": lambda grad: grad,
    "detached": lambda grad: grad.detach(),
    "data": lambda grad: grad.data,
    "a view": lambda grad: grad.view(-1)[1:],
    "an array": lambda grad: grad.numpy(),
    "its storage": lambda grad: torch.tensor([]).set_(grad.untyped_storage()),
}


@pytest.mark.parametrize("way", HELD)
def test_a_bucket_knows_whether_somebody_else_holds_a_view(way: str) -> None:
    """Counts of references are torch's and Python's own affair: this is what must hold of them."""
    params = [torch.nn.Parameter(torch.zeros(3, 2)), torch.nn.Parameter(torch.zeros(4))]
    bucket = Bucket(torch.zeros(room(params, marked=True)), params, marked=True)
    for held in (False, True):
        assert not bucket.is_shared(params)
        for index, param in enumerate(params):
            param.grad = bucket.views[index]
        assert not bucket.is_shared(params), "parameters hold gradients"
        kept = HELD[way](params[1].grad) if held else None
        for param in params:
            param.grad = None
        assert bucket.is_shared(params) == held
    del kept
    assert not bucket.is_shared(params), "it was let go"


def test_a_bucket_knows_of_a_view_that_was_given_other_memory() -> None:
    params = [torch.nn.Parameter(torch.zeros(3))]
    bucket = Bucket(torch.zeros(3), params)
    params[0].grad = bucket.views[0]
    params[0].grad.data = torch.ones(3)  # as a cast of the model does
    assert bucket.is_shared(params)
    bucket.lay(torch.zeros(3))
    assert not bucket.is_shared(params)
