"""Numbers that are not finite, in compressed exchanges: named, never spread, never remembered."""

from __future__ import annotations

import math
import re

import pytest
import torch
from torch import Tensor, nn

import tweed
from tests.attach.nets import batch, equal, on_each_backend, params
from tweed.cadence import LocalSteps
from tweed.compress import Direct, ErrorFeedback, ErrorReset, Identity, TopK
from tweed.errors import NonFinite
from tweed.strategy import Strategy
from tweed.testbed import run_ranks

BAD = [math.nan, math.inf, -math.inf]


def make() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Linear(8, 2))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def loss(model: nn.Module, rank: int, number: int) -> Tensor:
    value: Tensor = model(batch(rank, number, 4)).square().mean()
    return value


def spoiled_backward(model: nn.Module, value: Tensor, rank: int, bad: float) -> None:
    """One number of rank 1's gradient of '0.weight' is `bad`."""
    weight = model.get_parameter("0.weight")
    noise = torch.zeros_like(weight)
    noise[3, 2] = bad if rank == 1 else 0.0
    hook = weight.register_hook(lambda grad: grad + noise)
    value.backward()  # type: ignore[no-untyped-call]
    hook.remove()


def train(rank: int, bad: list[float]) -> list[Tensor]:
    """Three good steps; after the first, backward passes with bad gradients, which no step follows."""
    model, optimizer = make()
    run = tweed.attach(model, optimizer, Strategy(compress=ErrorFeedback(TopK(0.2))))
    for number in range(3):
        loss(model, rank, number).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        for value in bad if number == 0 else []:
            be_refused(model, optimizer, rank, value)
    run.detach()
    return params(model)


def be_refused(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, bad: float) -> None:
    before = params(model)
    spoiled_backward(model, loss(model, rank, 7), rank, bad)
    grads = [param.grad for param in model.parameters() if param.grad is not None]
    assert [float(grad.sum()) for grad in grads[1:]] == [0.0, 0.0]
    assert grads[0].isnan().all()
    with pytest.raises(NonFinite, match=r"'0.weight' on rank 1\. Nothing was exchanged"):
        optimizer.step()
    assert equal(before, params(model))
    optimizer.zero_grad()


def compare(rank: int, size: int) -> bool:
    return equal(train(rank, BAD), train(rank, []))


@on_each_backend
def test_a_bad_gradient_is_named_and_leaves_no_trace(backend: str) -> None:
    assert run_ranks(compare, 3, backend=backend) == [True] * 3


def scale(rank: int, size: int) -> list[float]:
    """The scale after each step; in the second, one number of rank 1 overflows."""
    model, optimizer = make()
    tweed.attach(model, optimizer, Strategy(compress=ErrorFeedback(TopK(0.2))))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scales = []
    for number in range(3):
        before = params(model)
        spoiled_backward(
            model, scaler.scale(loss(model, rank, number)), rank, math.inf if number == 1 else 0.0
        )
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        scales.append(scaler.get_scale())
        assert equal(before, params(model)) == (number == 1)
    return scales


@on_each_backend
def test_a_gradient_scaler_skips_the_step_on_all_ranks(backend: str) -> None:
    assert run_ranks(scale, 2, backend=backend) == [[4.0, 2.0, 2.0]] * 2


def scale_within_the_step(rank: int, size: int) -> None:
    """A fused optimizer leaves out the step itself."""
    model, _ = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    tweed.attach(model, optimizer, Strategy(compress=Direct(Identity())))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    before = params(model)
    spoiled_backward(model, scaler.scale(loss(model, rank, 0)), rank, math.nan)
    scaler.step(optimizer)
    assert equal(before, params(model))


def test_a_scaler_with_a_fused_optimizer_is_left_to_it() -> None:
    run_ranks(scale_within_the_step, 2, backend="gloo")


MOVEMENTS = [
    Strategy(exchange="step", compress=ErrorFeedback(TopK(0.2))),
    Strategy(exchange="difference", cadence=LocalSteps(2), compress=ErrorReset(TopK(0.2), Identity(), 2)),
]


def move(rank: int, size: int) -> list[str]:
    said = []
    for strategy in MOVEMENTS:
        model, optimizer = make()
        tweed.attach(model, optimizer, strategy)
        with torch.no_grad():
            model.get_parameter("1.bias")[0] = [0.0, math.nan][rank]
        with pytest.raises(NonFinite) as refusal:
            for _ in range(2):
                optimizer.step()
        said.append(str(refusal.value))
    return said


@on_each_backend
def test_a_bad_movement_is_refused_by_all_ranks_at_once(backend: str) -> None:
    for said in run_ranks(move, 2, backend=backend):
        assert len(said) == 2
        assert all(re.search(r"'1.bias' on rank 1\. Nothing was", text) for text in said)
