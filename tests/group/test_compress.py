"""Compressed exchanges over real ranks: the numbers of one process, equal models, nothing lost.

In training loops: every codec live as in one process, accumulation, clipping, silent ranks.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tweed
from tests.compress.group import Group
from tests.compress.table import TABLE, memory_for
from tests.hooks.nets import batch, equal, make, on_each_backend, params, step
from tweed.cadence import EventTriggered, EveryStep, Intermittent, LocalSteps, Moves
from tweed.compress import (
    Direct,
    ErrorFeedback,
    Identity,
    LazyAggregation,
    RandomBlocks,
    Spec,
    TopK,
)
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


STEPS = 3

MEMORIES = {repr(codec): memory_for(codec) for codec in TABLE}
SHAPES = ((40,), (300, 40))  # as they lie in the bucket: the last parameter comes first


class Given(nn.Module):
    """Its gradients are what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.zeros(SHAPES[1]))
        self.vector = nn.Parameter(torch.zeros(SHAPES[0]))

    def forward(self, flat: Tensor) -> Tensor:
        vector, matrix = flat[:40], flat[40:].view(300, 40)
        return (self.vector * vector).sum() + (self.matrix * matrix).sum()


def value(rank: int, number: int) -> Tensor:
    return torch.randn(40 + 300 * 40, generator=torch.Generator().manual_seed(31 * number + rank))


def live(rank: int, size: int) -> dict[str, list[Tensor]]:
    """Per memory, the averages of each step."""
    averages = {}
    for name, memory in MEMORIES.items():
        model = Given()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run = tweed.attach(model, optimizer, Strategy(compress=memory))
        averages[name] = []
        for number in range(STEPS):
            model(value(rank, number)).backward()
            averages[name].append(flat_gradient(model))
            optimizer.step()
            optimizer.zero_grad()
        run.detach()
    return averages


def flat_gradient(model: Given) -> Tensor:
    grads = (model.vector.grad, model.matrix.grad)
    return torch.cat([grad.flatten() for grad in grads if grad is not None])


@pytest.fixture(scope="module", params=["gloo", "tweed"])
def averages(request: pytest.FixtureRequest) -> list[dict[str, list[Tensor]]]:
    return run_ranks(live, 3, backend=request.param)


@pytest.mark.parametrize("name", MEMORIES)
def test_every_method_goes_live_as_in_one_process(averages: list[dict[str, list[Tensor]]], name: str) -> None:
    together = Group(MEMORIES[name], Spec(SHAPES), 3)
    for number in range(STEPS):
        placed = together.exchange([value(rank, number) for rank in range(3)])
        for rank in range(3):
            mine = averages[rank][name][number]
            near = 2e-2 if name.startswith("Half") else 1e-5  # 16 bits, added up in another order
            torch.testing.assert_close(mine, placed[rank].delta, rtol=1e-4, atol=near)
            assert torch.equal(mine, averages[0][name][number]), "ranks have the same gradient"


def accumulate(rank: int, size: int) -> list[Tensor]:
    """Gradients of one backward pass over a sum, and of several that are accumulated."""
    ends = []
    for at_once in (True, False):
        model = Given()
        run = tweed.attach(
            model, torch.optim.SGD(model.parameters(), lr=0.1), Strategy(compress=ErrorFeedback(TopK(0.05)))
        )
        parts = [value(rank, number) for number in range(3)]
        if at_once:
            model(parts[0] + parts[1] + parts[2]).backward()
        else:
            with run.no_sync():
                model(parts[0]).backward()
                model(parts[1]).backward()
            model(parts[2]).backward()
        assert run.stats.exchanges == 1
        ends.append(flat_gradient(model))
    return ends


@on_each_backend
def test_accumulated_gradients_are_exchanged_once(backend: str) -> None:
    for at_once, in_parts in run_ranks(accumulate, 2, backend=backend):
        torch.testing.assert_close(at_once, in_parts)


def clip(rank: int, size: int) -> list[float]:
    """Norms that clipping sees and leaves, and what the step moved."""
    model = Given()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    tweed.attach(model, optimizer, Strategy(compress=ErrorFeedback(TopK(0.05))))
    model(value(rank, 0)).backward()
    norm = float(flat_gradient(model).norm())
    seen = float(nn.utils.clip_grad_norm_(model.parameters(), 0.5))
    optimizer.step()
    moved = float(torch.cat([param.detach().flatten() for param in model.parameters()]).norm())
    return [norm, seen, moved]


@on_each_backend
def test_clipping_sees_the_average_of_all_ranks(backend: str) -> None:
    first, second = run_ranks(clip, 2, backend=backend)
    assert first == second
    assert first == pytest.approx([first[0], first[0], 0.5], rel=1e-4)
    assert first[0] > 0.5


SILENT: dict[str, Strategy] = {
    "drawn": Strategy(cadence=Intermittent(probability=0.4), compress=ErrorFeedback(TopK(0.05))),
    "drawn, sums": Strategy(cadence=Intermittent(probability=0.4), compress=ErrorFeedback(RandomBlocks(8))),
    "when there is news": Strategy(
        cadence=EventTriggered(Moves(rate=0.1, share=1e4)), compress=LazyAggregation(Identity(by_ranges=True))
    ),
    "steps when there is news": Strategy(
        exchange="step",
        cadence=EventTriggered(Moves(rate=1.0, share=2.0)),
        compress=LazyAggregation(Identity(by_ranges=True)),
    ),
}


def be_silent(rank: int, size: int) -> dict[str, Any]:
    """Per strategy: the model in the end, and the bytes that were packed in each step."""
    ends = {}
    for name, strategy in SILENT.items():
        model = nn.Linear(20, 30)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run = tweed.attach(model, optimizer, strategy)
        packed = [0]
        for number in range(8):
            step(model, optimizer, rank, number, width=20)
            packed.append(run.stats.bytes_packed)
        steps = [after - before for before, after in pairwise(packed)]
        ends[name] = (model.weight.detach().clone(), steps)
    return ends


@on_each_backend
def test_silent_ranks_take_part_and_say_nothing(backend: str) -> None:
    first, *others = run_ranks(be_silent, 3, backend=backend)
    for name in SILENT:
        weight, _ = first[name]
        assert all(torch.equal(weight, other[name][0]) for other in others), name
        said = [bytes_ for ends in (first, *others) for bytes_ in ends[name][1]]
        if "sums" in name:
            assert min(said) > 0, "zeros that are added up travel"
        else:
            assert 0 in said and max(said) > 0, name
