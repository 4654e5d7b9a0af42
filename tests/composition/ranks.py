"""What ranks do with a combination. Apart from the tests: their table takes seconds, at each import."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

import tweed
from tests.composition.parts import Names, combine

STEPS = 4


class Trained(NamedTuple):
    """What a rank has after some steps, and the average model then."""

    own: Tensor
    average: Tensor


class Matrix(nn.Module):
    """One matrix: so a buffer is the same live, where it is a bucket, and simulated."""

    def __init__(self) -> None:
        super().__init__()
        self.values = nn.Parameter(drawn(0, (48, 50)))


def drawn(seed: int, shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def loss(rank: int, step: int, model: Matrix) -> Tensor:
    """How far the model is from a point of this rank's own."""
    return (model.values - drawn(1 + rank + 10 * step, (48, 50))).square().sum() / 2


def trains(rank: int, size: int, every: list[Names]) -> list[Trained]:
    """All combinations, one after the other."""
    return [train(rank, names) for names in every]


def train(rank: int, names: Names) -> Trained:
    model, strategy = Matrix(), combine(names)
    assert strategy is not None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    run = tweed.attach(model, optimizer, strategy)
    for step in range(STEPS):
        if not run.serves:
            loss(rank, step, model).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    own = model.values.detach().clone()
    with run.averaged():
        average = model.values.detach().clone()
    run.detach()
    return Trained(own, average)
