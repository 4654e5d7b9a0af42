"""Ordered transmission over real timers: live ranks and a server."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import tweed
from tweed.cadence import Moves, Ordered, ServerPolicy
from tweed.collective import Server
from tweed.errors import NonFinite
from tweed.exchange.ordered import OrderedGradients
from tweed.hooks.run import Run
from tweed.strategy import Strategy
from tweed.testbed import run_ranks

NUMEL, STEPS, LR = 64, 12, 0.2


def strategy(policy: ServerPolicy, window_s: float = 0.02) -> Strategy:
    return Strategy(cadence=Ordered(policy, window_s), collective=Server(0))


ALL = strategy(ServerPolicy(history=Moves(LR, share=0.0)))


class Bowl(nn.Module):
    """A quadratic function of each rank's own."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(rank)
        self.x = nn.Parameter(torch.zeros(NUMEL))
        self.curve = torch.rand(NUMEL, generator=random) + 0.2 * rank
        self.best = torch.randn(NUMEL, generator=random)

    def forward(self) -> Tensor:
        return (self.curve * (self.x - self.best).square()).sum() / 2


def steps(run: Run, model: Bowl, optimizer: torch.optim.Optimizer, number: int) -> list[Tensor]:
    """Where the model is after each of so many steps."""
    went = []
    for _ in range(number):
        if not run.serves:
            model().backward()
        optimizer.step()
        optimizer.zero_grad()
        went.append(model.x.detach().clone())
    return went


def train(rank: int, size: int, chosen: Strategy) -> dict[str, Any]:
    model = Bowl(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    run = tweed.attach(model, optimizer, chosen)
    went = steps(run, model, optimizer, STEPS)
    reducer = run._exchange.reducer  # type: ignore[attr-defined]
    assert isinstance(reducer, OrderedGradients)
    seen = {"went": went, "said": reducer.sent, "silent": reducer.withheld}
    dist.barrier()
    run.detach()
    return seen


def alone(size: int) -> list[Tensor]:
    """The same by plain gradient descent, summed in the order of ranks."""
    bowls = [Bowl(rank) for rank in range(1, size)]
    optimizers = [torch.optim.SGD(bowl.parameters(), lr=LR) for bowl in bowls]
    went = []
    for _ in range(STEPS):
        gradients = [torch.autograd.grad(bowl(), bowl.x)[0] * (1 / len(bowls)) for bowl in bowls]
        total = sum(gradients[1:], start=gradients[0])
        for bowl, optimizer in zip(bowls, optimizers, strict=True):
            bowl.x.grad = total
            optimizer.step()
        went.append(bowls[0].x.detach().clone())
    return went


@pytest.mark.parametrize("size", [2, 4])
def test_with_nothing_allowed_it_is_gradient_descent_bit_for_bit(size: int) -> None:
    results = run_ranks(train, size, ALL, backend="tweed")
    for result in results:
        assert all(map(torch.equal, result["went"], alone(size)))
    assert results[0]["said"] == (size - 1) * STEPS and results[0]["silent"] == 0


@pytest.mark.parametrize(
    "policy", [ServerPolicy(share=0.9), ServerPolicy(history=Moves(LR), silence=False)], ids=repr
)
def test_each_worker_ends_each_iteration_with_one_message_and_all_have_one_model(
    policy: ServerPolicy,
) -> None:
    results = run_ranks(train, 4, strategy(policy), backend="tweed")
    for result in results[1:]:
        assert all(map(torch.equal, result["went"], results[0]["went"]))
        assert result["said"] + result["silent"] == STEPS
    assert results[0]["said"] == sum(result["said"] for result in results[1:])
    assert 0 < results[0]["said"] <= 3 * STEPS
    assert torch.dist(results[0]["went"][-1], alone(4)[-1]) < torch.dist(torch.zeros(NUMEL), alone(4)[-1])


def spoil(rank: int, size: int) -> None:
    model = Bowl(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    run = tweed.attach(model, optimizer, ALL)
    if not run.serves:
        (model() * (float("nan") if rank == 2 else 1.0)).backward()
    before = model.x.detach().clone()
    with pytest.raises(NonFinite, match="rank 2"):
        optimizer.step()
    assert torch.equal(model.x, before)
    dist.barrier()
    run.detach()


def test_a_gradient_that_is_not_finite_is_named_everywhere() -> None:
    run_ranks(spoil, 3, backend="tweed")


def resume(rank: int, size: int) -> list[Tensor]:
    """Six steps, then a new run that goes on from the first one's state."""
    model = Bowl(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    state, went = None, []
    for _ in range(2):
        run = tweed.attach(model, optimizer, ALL)
        if state is not None:
            run.load_state_dict(state)
        went += steps(run, model, optimizer, STEPS // 2)
        state = run.state_dict()
        dist.barrier()
        run.detach()
    return went


def test_it_goes_on_from_a_checkpoint() -> None:
    for went in run_ranks(resume, 3, backend="tweed"):
        assert all(map(torch.equal, went, alone(3)))
