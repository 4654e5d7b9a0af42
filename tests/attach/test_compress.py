"""Compressed exchanges over real ranks: the numbers of one process, equal models, nothing lost."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import tweed
from tests.attach.nets import batch, equal, make, on_each_backend, params, step
from tweed.cadence import EveryStep, LocalSteps
from tweed.compress import Direct, ErrorFeedback, Identity, TopK
from tweed.strategy import Strategy
from tweed.testbed import run_ranks

#: Strategies without compression, to which the same with all numbers said is compared.
PLAIN = {
    "gradient": Strategy(),
    "step": Strategy(exchange="step"),
    "difference": Strategy(exchange="difference", cadence=LocalSteps(2)),
}
SAY_ALL = {"all by sums": Direct(Identity()), "all by ranges": ErrorFeedback(TopK(1.0))}


def train(rank: int, strategy: Strategy, steps: int = 4) -> list[Tensor]:
    model, optimizer = make(rank)
    run = tweed.attach(model, optimizer, strategy, bucket_bytes=400)
    for number in range(steps):
        step(model, optimizer, rank, number)
    run.detach()
    return params(model)


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
@pytest.mark.parametrize("size", [1, 3])
def test_who_says_all_trains_as_without_compression(backend: str, size: int) -> None:
    assert run_ranks(say_all, size, backend=backend) == [[]] * size


def sparse_alone(size: int, steps: int, density: float, momentum: float) -> list[Tensor]:
    """The model after error feedback with top-k on gradients, all ranks' work by hand in one process."""
    model, _ = make()
    backwards = list(model.parameters())[::-1]
    sizes = [param.numel() for param in backwards]
    errors = [torch.zeros(sum(sizes)) for _ in range(size)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    for number in range(steps):
        total = torch.zeros_like(errors[0])
        for rank, error in enumerate(errors):
            model.zero_grad()
            model(batch(rank, number)).square().mean().backward()
            error += torch.cat([param.grad.flatten() for param in backwards])
            said = error.abs().topk(round(density * len(error))).indices
            total[said] += error[said]
            error[said] = 0
        for param, piece in zip(backwards, (total / size).split(sizes), strict=True):
            param.grad = piece.view(param.shape)
        optimizer.step()
    return params(model)


def sparse(rank: int, size: int) -> list[Tensor]:
    model, optimizer = make(0)
    run = tweed.attach(model, optimizer, Strategy(compress=ErrorFeedback(TopK(0.1))))
    for number in range(5):
        step(model, optimizer, rank, number)
    assert (run.stats.steps, run.stats.exchanges) == (5, 5)
    return params(model)


@on_each_backend
def test_error_feedback_with_top_k_has_the_numbers_of_one_process(backend: str) -> None:
    alone = sparse_alone(3, 5, 0.1, 0.9)
    for model in run_ranks(sparse, 3, backend=backend):
        for mine, true in zip(model, alone, strict=True):
            torch.testing.assert_close(mine, true)


SPARSE: dict[str, Strategy] = {
    "gradient": Strategy(compress=ErrorFeedback(TopK(0.1))),
    "step": Strategy(exchange="step", compress=ErrorFeedback(TopK(0.1))),
    "difference": Strategy("difference", LocalSteps(2), ErrorFeedback(TopK(0.1))),
    "forgetful": Strategy(exchange="step", cadence=EveryStep(), compress=Direct(TopK(0.1))),
}


def train_each(rank: int, size: int) -> dict[str, list[Tensor]]:
    return {name: train(rank, strategy) for name, strategy in SPARSE.items()}


@on_each_backend
def test_models_are_equal_bit_for_bit_after_an_exchange(backend: str) -> None:
    first, *others = run_ranks(train_each, 3, backend=backend)
    for other in others:
        for name in SPARSE:
            assert equal(first[name], other[name]), name
