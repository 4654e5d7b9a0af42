"""What compressed exchanges keep: exact resume, one model at the end, the average model, and counts."""

from __future__ import annotations

import io

import pytest
import torch
from torch import Tensor, nn

import tweed
from tweed.cadence import Intermittent, LocalSteps, Nesterov
from tweed.compress import (
    Codec,
    ErrorFeedback,
    ErrorReset,
    Half,
    Identity,
    LowRank,
    Quantise,
    RandomBlocks,
    RandomK,
    StepAhead,
    Threshold,
    TopK,
)
from tweed.compress.base import Spec
from tweed.errors import UsageError
from tweed.strategy import Strategy
from tweed.testbed import run_ranks

on_each_backend = pytest.mark.parametrize("backend", ["gloo", "tweed"])
TWO = LocalSteps(2)

STRATEGIES: dict[str, Strategy] = {
    "gradient, error feedback": Strategy(compress=ErrorFeedback(TopK(0.1))),
    "gradient, chance": Strategy(compress=ErrorFeedback(RandomK(0.1))),
    "gradient, both ways": Strategy(compress=ErrorFeedback(TopK(0.1, both_ways=True))),
    "gradient, 8 bits": Strategy(compress=ErrorFeedback(Quantise(8, nearest=True))),
    "gradient, low rank": Strategy(compress=ErrorFeedback(LowRank(2))),
    "gradient, threshold": Strategy(compress=ErrorFeedback(Threshold(0.1, lifespan=3))),
    "gradient, silent ranks": Strategy(
        cadence=Intermittent(probability=0.5), compress=ErrorFeedback(TopK(0.1))
    ),
    "step, error feedback": Strategy(exchange="step", compress=ErrorFeedback(TopK(0.1))),
    "step, ahead": Strategy(exchange="step", compress=StepAhead(TopK(0.1), 0.5, 3)),
    "difference, ahead": Strategy(exchange="difference", cadence=TWO, compress=StepAhead(TopK(0.1))),
    "step, reset": Strategy(exchange="step", compress=ErrorReset(TopK(0.1), RandomBlocks(4), 3)),
    "difference, outer": Strategy(exchange="difference", cadence=LocalSteps(2, outer=Nesterov())),
    "difference, outer, half": Strategy(
        exchange="difference", cadence=LocalSteps(2, outer=Nesterov()), compress=ErrorFeedback(Half())
    ),
}


def make(seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 40), nn.BatchNorm1d(40), nn.Linear(40, 2).bfloat16())
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def forward(model: nn.Module, x: Tensor) -> Tensor:
    first, norm, last = model.children()
    result: Tensor = last(norm(first(x)).bfloat16())
    return result


def step(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, number: int) -> None:
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(31 * number + rank))
    forward(model, x).square().mean().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()


def floats(model: nn.Module) -> list[Tensor]:
    return [tensor.detach() for tensor in model.state_dict().values() if tensor.is_floating_point()]


def equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(mine, true) for mine, true in zip(one, other, strict=True))


def go_on(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, numbers: range) -> None:
    for number in numbers:
        step(model, optimizer, rank, number)


def resumes(rank: int, strategy: Strategy, at: int, finish: bool) -> bool:
    """Trains for 7 steps, and again from what was stored after `at` of them."""
    model, optimizer = make()
    run = tweed.attach(model, optimizer, strategy, bucket_bytes=400)
    go_on(model, optimizer, rank, range(at))
    if finish:
        run.finish()
    file = io.BytesIO()
    torch.save([part.state_dict() for part in (model, optimizer, run)], file)
    go_on(model, optimizer, rank, range(at, 7))

    again, its_optimizer = make(seed=99)
    its_run = tweed.attach(again, its_optimizer, strategy, bucket_bytes=400)
    file.seek(0)
    for part, state in zip((again, its_optimizer, its_run), torch.load(file, weights_only=True), strict=True):
        part.load_state_dict(state)
    go_on(again, its_optimizer, rank, range(at, 7))
    return equal(floats(again), floats(model)) and its_run.stats.bytes_packed == run.stats.bytes_packed


def resume_all(rank: int, size: int) -> list[str]:
    return [
        f"{name} after {at}, finished: {finish}"
        for name, strategy in STRATEGIES.items()
        for at, finish in ((3, False), (4, False), (3, True))
        if not resumes(rank, strategy, at, finish)
    ]


@on_each_backend
def test_a_resumed_run_is_exact(backend: str) -> None:
    assert run_ranks(resume_all, 2, backend=backend) == [[], []]


def load_what_does_not_fit(rank: int, size: int) -> None:
    model, optimizer = make()
    strategy = STRATEGIES["step, error feedback"]
    state = tweed.attach(model, optimizer, strategy, bucket_bytes=400).state_dict()
    model, optimizer = make()
    run = tweed.attach(model, optimizer, strategy)
    with pytest.raises(UsageError, match="bucket_bytes"):
        run.load_state_dict(state)


def test_a_state_of_other_buckets_is_refused() -> None:
    run_ranks(load_what_does_not_fit, 1, backend="gloo")


def finish_all(rank: int, size: int) -> dict[str, list[Tensor]]:
    models = {}
    for name, strategy in STRATEGIES.items():
        model, optimizer = make()
        run = tweed.attach(model, optimizer, strategy)
        go_on(model, optimizer, rank, range(5))
        run.finish()
        models[name] = [param.detach() for param in model.parameters()]
    return models


@on_each_backend
def test_after_finish_all_ranks_have_one_model(backend: str) -> None:
    first, second = run_ranks(finish_all, 2, backend=backend)
    assert [name for name in STRATEGIES if not equal(first[name], second[name])] == []


def evaluate_all(rank: int, size: int) -> dict[str, list[list[Tensor]]]:
    """Per strategy: the model after five steps, what `averaged` shows, and the model again."""
    shown = {}
    for name, strategy in STRATEGIES.items():
        model, optimizer = make()
        run = tweed.attach(model, optimizer, strategy)
        go_on(model, optimizer, rank, range(5))
        before = [tensor.clone() for tensor in model.parameters()]
        with run.averaged():
            within = [tensor.clone() for tensor in model.parameters()]
        shown[name] = [before, within, [tensor.clone() for tensor in model.parameters()]]
    return shown


@on_each_backend
def test_averaged_shows_one_model_and_takes_it_back(backend: str) -> None:
    first, second = run_ranks(evaluate_all, 2, backend=backend)
    for name, strategy in STRATEGIES.items():
        for before, _, after in (first[name], second[name]):
            assert equal(before, after), name
        assert equal(first[name][1], second[name][1]), name
        if strategy.memory is not None and strategy.memory.replicas_diverge:
            for one, two, mean in zip(first[name][0], second[name][0], first[name][1], strict=True):
                true = (one.float() + two.float()) / 2
                torch.testing.assert_close(mean.float(), true, rtol=1e-2, atol=1e-6)


METHODS: dict[str, Codec] = {
    "all": Identity(),
    "half": Half(),
    "top-k": TopK(0.01),
    "random-k": RandomK(0.01),
    "random blocks": RandomBlocks(20),
}


def count(rank: int, size: int) -> dict[str, float]:
    """How many bytes per step were packed, by method."""
    counts = {}
    for name, method in METHODS.items():
        model = nn.Linear(300, 500)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run = tweed.attach(model, optimizer, Strategy(compress=ErrorFeedback(method)))
        for number in range(3):
            x = torch.randn(6, 300, generator=torch.Generator().manual_seed(31 * number + rank))
            model(x).square().mean().backward()
        counts[name] = run.stats.bytes_packed / 3
    return counts


def test_bytes_are_those_of_the_formula() -> None:
    spec = Spec(((500,), (500, 300)))
    for counts in run_ranks(count, 2, backend="tweed"):
        for name, method in METHODS.items():
            assert counts[name] == pytest.approx(method.packet_bytes(spec), rel=0.01), name
