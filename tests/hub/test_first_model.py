"""A hub's model is the one that training begins with: no other leaves its rank."""

from __future__ import annotations

import torch

import tweed
from tests.hooks.nets import make, params
from tweed.aggregate import All
from tweed.collective import Hub
from tweed.compress import ClippedNoise
from tweed.strategy import Strategy
from tweed.testbed import run_ranks


def attached(rank: int, size: int) -> tuple[list[torch.Tensor], float]:
    """Worker 1 has a model that it has learned from its data before; the others have not."""
    model, _ = make(0)
    if rank == 1:
        with torch.no_grad():
            for param in model.parameters():
                param.fill_(7.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    run = tweed.attach(
        model, optimizer, Strategy(collective=Hub(0, when=All(), privacy=ClippedNoise(1.0, 3.0)))
    )
    found = params(model)
    epsilon = run._exchange.noisy if rank else 0
    if run.serves:
        run.serve()
    run.detach()
    return found, epsilon


def test_the_model_of_a_worker_does_not_leave_it_without_noise() -> None:
    """`attach` begins with the first worker's parameters and buffers, not the hub's."""
    (hub, _), (_, counted), _ = run_ranks(attached, 3, backend="tweed")
    assert not all(bool((param == 7.0).all()) for param in hub), f"the hub has it, and {counted} are counted"
