"""What the tests of `attach` train and compare: small models, and steps with data of each rank's own."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tweed
from tweed.hooks.run import Run
from tweed.strategy import Strategy

on_each_backend = pytest.mark.parametrize("backend", ["gloo", "tweed"])
Made = tuple[nn.Module, torch.optim.Optimizer]


class Cast(nn.Module):
    """What comes in, as bfloat16."""

    def forward(self, x: Tensor) -> Tensor:
        return x.bfloat16()


def make(seed: int = 0, hidden: int = 40) -> Made:
    """Float32 throughout, with buffers."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, hidden), nn.BatchNorm1d(hidden), nn.Linear(hidden, 2))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def make_mixed(seed: int = 0) -> Made:
    """As `make`, with a last layer in bfloat16."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 40), nn.BatchNorm1d(40), Cast(), nn.Linear(40, 2).bfloat16())
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def batch(rank: int, number: int, width: int = 3) -> Tensor:
    """`[6, width]`, other values for each rank and step."""
    return torch.randn(6, width, generator=torch.Generator().manual_seed(31 * number + rank))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, number: int, width: int = 3) -> None:
    """One step of a plain training loop."""
    model(batch(rank, number, width)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def params(model: nn.Module) -> list[Tensor]:
    """Copies of its parameters."""
    return [param.detach().clone() for param in model.parameters()]


def floats(model: nn.Module) -> list[Tensor]:
    """Its parameters and floating-point buffers."""
    return [tensor.detach() for tensor in model.state_dict().values() if tensor.is_floating_point()]


def equal(one: Iterable[Tensor], other: Iterable[Tensor]) -> bool:
    """Bit for bit."""
    return all(torch.equal(mine, true) for mine, true in zip(one, other, strict=True))


def resumes(
    rank: int, strategy: Strategy, new: Callable[[int], Made], at: int, finish: bool = False, **settings: Any
) -> bool:
    """Trains for 7 steps, and again from what was stored after `at` of them: whether both end alike."""

    def start(seed: int) -> tuple[nn.Module, torch.optim.Optimizer, Run]:
        model, optimizer = new(seed)
        return model, optimizer, tweed.attach(model, optimizer, strategy, **settings)

    def go_on(parts: tuple[nn.Module, torch.optim.Optimizer, Run], numbers: range) -> None:
        for number in numbers:
            step(*parts[:2], rank, number)

    first, stored = start(0), io.BytesIO()
    go_on(first, range(at))
    if finish:
        first[2].finish()
    torch.save([part.state_dict() for part in first], stored)
    go_on(first, range(at, 7))
    second = start(99)
    stored.seek(0)
    for part, state in zip(second, torch.load(stored, weights_only=True), strict=True):
        part.load_state_dict(state)
    go_on(second, range(at, 7))
    counts = [(run.stats.steps, run.stats.exchanges, run.stats.bytes_packed) for *_, run in (first, second)]
    return equal(floats(first[0]), floats(second[0])) and counts[0] == counts[1]
