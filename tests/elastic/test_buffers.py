"""Buffers of members: movements, their means, and a model whose state is whole. Pure."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tweed.elastic.training.buffers import WholeModel, move, movement, numel
from tweed.errors import UsageError
from tweed.hooks.checks import check_real
from tweed.recipes.named import named_strategy

LOWEST = torch.finfo(torch.float16).min
STILL = {
    "a mask of infinities": torch.full((2, 2), -torch.inf).triu(1),
    "a mask of float16": torch.full((2, 2), LOWEST, dtype=torch.float16).triu(1),
    "not a number": torch.tensor([torch.nan, 1.0]),
    "packed weights": torch.tensor([2**31 - 1, -(2**31), 12345678], dtype=torch.int32),
    "offsets": torch.tensor([2**62 + 1, 9_980_333]),
    "rotary positions": torch.polar(torch.ones(4), torch.arange(4.0)),
    "flags": torch.tensor([True, False]),
}


def mean(movements: list[Tensor], samples: list[int]) -> Tensor:
    """As members form it, in float32."""
    each = [one.float() * count for one, count in zip(movements, samples, strict=True)]
    return torch.stack(each).sum(0) / sum(samples)


@pytest.mark.parametrize("name", STILL)
def test_what_has_not_moved_keeps_its_bits(name: str) -> None:
    begun = STILL[name]
    buffer = begun.clone()
    moved = movement(buffer, begun)
    assert moved.shape == (numel(buffer),) and not moved.any()
    move([buffer], [begun], iter([mean([moved] * 3, [7, 5, 4])]))
    assert torch.equal(buffer.view(torch.uint8), begun.view(torch.uint8))


MOVED = [
    (
        torch.tensor([1.0, 2.0]),
        [torch.tensor([2.0, 2.0]), torch.tensor([4.0, 2.0])],
        torch.tensor([2.5, 2.0]),
    ),
    (torch.tensor(2**40), [torch.tensor(2**40 + 3)] * 2, torch.tensor(2**40 + 3)),
    (torch.tensor(5), [torch.tensor(6), torch.tensor(8)], torch.tensor(7)),  # by 1.5, to even
    (torch.tensor([0j]), [torch.tensor([4j]), torch.tensor([4 + 0j])], torch.tensor([1 + 3j])),
    (torch.tensor([False]), [torch.tensor([True])] * 2, torch.tensor([True])),
    (torch.tensor([True]), [torch.tensor([False])] * 2, torch.tensor([False])),
]


@pytest.mark.parametrize(("begun", "ends", "right"), MOVED)
def test_what_has_moved_moves_by_the_mean_over_samples(
    begun: Tensor, ends: list[Tensor], right: Tensor
) -> None:
    """Of three samples at the first member, and one at the second."""
    buffer = ends[0].clone()
    move([buffer], [begun], iter([mean([movement(end, begun) for end in ends], [3, 1])]))
    assert buffer.dtype == begun.dtype
    assert torch.equal(buffer, right.to(buffer.dtype))


def test_whole_numbers_that_move_too_far_are_refused() -> None:
    with pytest.raises(UsageError, match="has moved by more than 1048576 in a step"):
        movement(torch.tensor([2**21]), torch.tensor([0]))


class Net(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.register_buffer("kept", torch.full((2,), value))
        self.register_buffer("left_out", torch.full((2,), value), persistent=False)


def test_a_model_is_kept_with_the_buffers_that_its_state_leaves_out() -> None:
    first, other = Net(1.0), Net(2.0)
    WholeModel(other).load_state_dict(WholeModel(first).state_dict())
    assert all(map(torch.equal, other.parameters(), first.parameters()))
    assert other.kept.tolist() == other.left_out.tolist() == [1.0, 1.0]


REAL = [("top_k:0.1", False), ("diloco:2", False), ("teasq", False), ("every_step", True)]


def test_complex_parameters_are_refused_where_they_would_lose_a_part() -> None:
    model = nn.Linear(2, 1, dtype=torch.complex64)
    for name in ("every_step", "local_steps"):
        check_real(model, named_strategy(name), elastic=False)
    for name, elastic in REAL:
        with pytest.raises(UsageError, match="parameter 'weight' is complex"):
            check_real(model, named_strategy(name), elastic=elastic)
