"""Steps that wait for whoever reads a parameter: the numbers of `every_step`, bit for bit."""

from __future__ import annotations

import torch
from torch import nn

import tweed
from tests.hooks.nets import equal, on_each_backend, params
from tweed.testbed import run_ranks


def train(rank: int, strategy: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tweed.attach(model, optimizer, strategy, bucket_bytes=1):
        for number in range(4):
            x = torch.randn(6, 3, generator=torch.Generator().manual_seed(31 * number + rank))
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return params(model)


def compare(rank: int, size: int) -> None:
    assert equal(train(rank, "urgent"), train(rank, "every_step"))


@on_each_backend
def test_two_ranks_train_as_every_step(backend: str) -> None:
    run_ranks(compare, 2, backend=backend)
