"""Compressed exchanges over real ranks: the numbers of one process, equal models, nothing lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tweed
from tweed.cadence import EveryStep, LocalSteps
from tweed.compress import Direct, ErrorFeedback, Identity, TopK
from tweed.strategy import Strategy
from tweed.testbed import run_ranks

BACKENDS = ["gloo", "tweed"]
SIZES = [1, 3]
on_each_backend = pytest.mark.parametrize("backend", BACKENDS)

#: Strategies without compression, to which the same with all numbers said is compared.
PLAIN = {
    "gradient": Strategy(),
    "step": Strategy(exchange="step"),
    "difference": Strategy(exchange="difference", cadence=LocalSteps(2)),
}
SAY_ALL = {"all by sums": Direct(Identity()), "all by ranges": ErrorFeedback(TopK(1.0))}


def make(seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 40), nn.BatchNorm1d(40), nn.Linear(40, 2))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, number: int) -> None:
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(31 * number + rank))
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def train(rank: int, strategy: Strategy, steps: int = 4) -> list[Tensor]:
    model, optimizer = make(rank)
    run = tweed.attach(model, optimizer, strategy, bucket_bytes=400)
    for number in range(steps):
        step(model, optimizer, rank, number)
    run.detach()
    return [param.detach() for param in model.parameters()]


def say_all(rank: int, size: int) -> list[str]:
    """Which of the strategies end elsewhere than without compression."""
    wrong = []
    for kind, plain in PLAIN.items():
        truth = train(rank, plain)
        for name, memory in SAY_ALL.items():
            mine = train(rank, Strategy(plain.exchange, plain.cadence, memory))
            if not all(torch.allclose(one, other, atol=1e-6) for one, other in zip(mine, truth, strict=True)):
                wrong.append(f"{kind}, {name}")
    return wrong


@on_each_backend
@pytest.mark.parametrize("size", SIZES)
def test_who_says_all_trains_as_without_compression(backend: str, size: int) -> None:
    assert run_ranks(say_all, size, backend=backend) == [[]] * size


def sparse_alone(size: int, steps: int, density: float, momentum: float) -> list[Tensor]:
    """The model after error feedback with top-k on gradients, all ranks' work by hand in one process."""
    model, _ = make()
    params = list(model.parameters())
    errors = [torch.zeros(sum(param.numel() for param in params)) for _ in range(size)]
    optimizer = torch.optim.SGD(params, lr=0.1, momentum=momentum)
    for number in range(steps):
        total = torch.zeros_like(errors[0])
        for rank, error in enumerate(errors):
            model.zero_grad()
            x = torch.randn(6, 3, generator=torch.Generator().manual_seed(31 * number + rank))
            model(x).square().mean().backward()
            error += torch.cat([param.grad.flatten() for param in params[::-1]])
            said = error.abs().topk(round(density * len(error))).indices
            total[said] += error[said]
            error[said] = 0
        _spread(total / size, params[::-1])
        optimizer.step()
    return [param.detach() for param in params]


def _spread(flat: Tensor, params: list[Any]) -> None:
    pieces = flat.split([param.numel() for param in params])
    for param, piece in zip(params, pieces, strict=True):
        param.grad = piece.view(param.shape)


def sparse(rank: int, size: int) -> list[Tensor]:
    model, optimizer = make(0)
    run = tweed.attach(model, optimizer, Strategy(compress=ErrorFeedback(TopK(0.1))))
    for number in range(5):
        step(model, optimizer, rank, number)
    assert (run.stats.steps, run.stats.exchanges) == (5, 5)
    return [param.detach() for param in model.parameters()]


@on_each_backend
def test_error_feedback_with_top_k_has_the_numbers_of_one_process(backend: str) -> None:
    alone = sparse_alone(3, 5, 0.1, 0.9)
    for model in run_ranks(sparse, 3, backend=backend):
        for mine, true in zip(model, alone, strict=True):
            torch.testing.assert_close(mine, true)


SPARSE: dict[str, Callable[[], Strategy]] = {
    "gradient": lambda: Strategy(compress=ErrorFeedback(TopK(0.1))),
    "step": lambda: Strategy(exchange="step", compress=ErrorFeedback(TopK(0.1))),
    "difference": lambda: Strategy(
        exchange="difference", cadence=LocalSteps(2), compress=ErrorFeedback(TopK(0.1))
    ),
    "forgetful": lambda: Strategy(exchange="step", cadence=EveryStep(), compress=Direct(TopK(0.1))),
}


def train_each(rank: int, size: int) -> dict[str, list[Tensor]]:
    return {name: train(rank, strategy()) for name, strategy in SPARSE.items()}


@on_each_backend
def test_models_are_equal_bit_for_bit_after_an_exchange(backend: str) -> None:
    first, *others = run_ranks(train_each, 3, backend=backend)
    for other in others:
        for name in SPARSE:
            assert all(torch.equal(one, two) for one, two in zip(first[name], other[name], strict=True)), name
