"""Gradients are the user's: what is kept of them is never written again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tweed
from tests.hooks.nets import batch, make, on_each_backend
from tweed.testbed import run_ranks

#: Ways to hold a gradient, and to look at it later.
WAYS: dict[str, Callable[[Tensor], Any]] = {
    "the gradient itself": lambda grad: grad,
    "another tensor of its memory": lambda grad: grad.detach(),
    "a part": lambda grad: grad.reshape(-1)[1:],
    "an array": lambda grad: grad.numpy(),
    "its storage": lambda grad: torch.tensor([], dtype=grad.dtype).set_(grad.untyped_storage()),
}


def keeps(rank: int, size: int, strategy: str) -> list[str]:
    wrong = []
    for name, way in WAYS.items():
        model, optimizer = make()
        run = tweed.attach(model, optimizer, strategy, bucket_bytes=100)
        kept = []
        for number in range(4):
            model(batch(rank, number)).square().mean().backward()
            if number != 2:  # one exchange reuses memory
                held = [way(param.grad) for param in model.parameters()]
                kept += [(one, torch.as_tensor(one).clone()) for one in held]
            optimizer.step()
            optimizer.zero_grad()
        run.detach()
        if not all(torch.equal(torch.as_tensor(one), copy) for one, copy in kept):
            wrong.append(name)
    return wrong


@pytest.mark.parametrize("strategy", ["every_step", "urgent", "top_k:0.5", "ltp"])
def test_what_is_kept_of_gradients_stays_as_it_is(strategy: str) -> None:
    assert run_ranks(keeps, 2, strategy, backend="tweed") == [[], []]


def addresses(rank: int, size: int, strategy: str, set_to_none: bool) -> int:
    """In how many places gradients are over ten steps, if nobody keeps them."""
    model, optimizer = make()
    run = tweed.attach(model, optimizer, strategy, bucket_bytes=100)
    seen = set()
    for number in range(10):
        model(batch(rank, number)).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        seen.add(tuple(param.grad.data_ptr() for param in model.parameters()))
        optimizer.step()
        optimizer.zero_grad(set_to_none)
    run.detach()
    return len(seen)


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("strategy", ["every_step", "urgent", "top_k:0.5"])
@on_each_backend
def test_memory_is_used_again_where_nobody_keeps_any(strategy: str, set_to_none: bool, backend: str) -> None:
    assert run_ranks(addresses, 2, strategy, set_to_none, backend=backend) == [1, 1]


def cast_between(rank: int, size: int) -> list[float]:
    """`.to(memory_format=...)` gives gradients, too, other memory."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = tweed.attach(model, optimizer, "every_step")
    x = torch.full((1, 1, 3, 3), float(rank + 1))
    found = []
    for number in range(3):
        model(x).sum().backward()
        found.append(float(model[2].bias.grad) * (rank + 1) + float(model[0].weight.grad.sum()))
        if number == 0:
            model.to(memory_format=torch.channels_last)
        optimizer.zero_grad()
    run.detach()
    return [one - found[0] - rank * 0 for one in found]


def test_gradients_go_on_in_buckets_after_a_change_of_format() -> None:
    for found in run_ranks(cast_between, 2, backend="gloo"):
        assert found == pytest.approx([0.0, 0.0, 0.0], abs=1e-6)
