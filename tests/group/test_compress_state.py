"""What compressed exchanges keep: exact resume, one model at the end, the average model, and counts.

Values that are not finite are named, never sent, never remembered.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

import tweed
from tests.group.test_model import STRATEGIES as PLAIN
from tests.hooks.nets import batch, equal, make, make_mixed, on_each_backend, params, resumes, step
from tweed.cadence import Intermittent, LocalSteps, Nesterov
from tweed.compress import (
    Codec,
    Direct,
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
from tweed.errors import NonFinite, UsageError
from tweed.strategy import Strategy
from tweed.testbed import run_ranks

TWO = LocalSteps(2)

STRATEGIES: dict[str, Strategy] = {
    "gradient, error feedback": Strategy(compress=ErrorFeedback(TopK(0.1))),
    "gradient, chance": Strategy(compress=ErrorFeedback(RandomK(0.1))),
    "gradient, both ways": Strategy(compress=ErrorFeedback(TopK(0.1, bidirectional=True))),
    "gradient, 8 bits": Strategy(compress=ErrorFeedback(Quantise(8, nearest=True))),
    "gradient, low rank": Strategy(compress=ErrorFeedback(LowRank(2))),
    "gradient, threshold": Strategy(compress=ErrorFeedback(Threshold(0.1, lifespan=3))),
    "gradient, controlled threshold": Strategy(compress=ErrorFeedback(Threshold(0.1, dense_below=0))),
    "gradient, silent ranks": Strategy(
        cadence=Intermittent(probability=0.5), compress=ErrorFeedback(TopK(0.1))
    ),
    "step, error feedback": Strategy(exchange="step", compress=ErrorFeedback(TopK(0.1))),
    "step, ahead": Strategy(exchange="step", compress=StepAhead(TopK(0.1), 0.5, 3)),
    "difference, ahead": Strategy(exchange="difference", cadence=TWO, compress=StepAhead(TopK(0.1))),
    "step, reset": Strategy(exchange="step", compress=ErrorReset(TopK(0.1), RandomBlocks(4), 3)),
    "difference, proximal": Strategy("difference", LocalSteps(2, proximal=0.5), ErrorFeedback(TopK(0.1))),
    "difference, outer": Strategy(exchange="difference", cadence=LocalSteps(2, outer=Nesterov())),
    "difference, outer, half": Strategy(
        exchange="difference", cadence=LocalSteps(2, outer=Nesterov()), compress=ErrorFeedback(Half())
    ),
}


def resume_all(rank: int, size: int, ends: Sequence[tuple[int, bool]]) -> list[str]:
    tables = [(make_mixed, 400, STRATEGIES), (make, 25 * 2**20, PLAIN | {"gradient": Strategy()})]
    return [
        f"{name} after {at}, finished: {finish}"
        for new, bucket_bytes, table in tables
        for name, strategy in table.items()
        for at, finish in ends
        if not resumes(rank, strategy, new, at, finish, bucket_bytes=bucket_bytes)
    ]


@pytest.mark.parametrize(
    ("backend", "ends"),
    [("tweed", [(2, False), (3, False), (4, False), (3, True)]), ("gloo", [(3, False), (3, True)])],
)
def test_a_resumed_run_is_exact(backend: str, ends: list[tuple[int, bool]]) -> None:
    assert run_ranks(resume_all, 2, ends, backend=backend) == [[], []]


def load_what_does_not_fit(rank: int, size: int) -> None:
    model, optimizer = make_mixed()
    strategy = STRATEGIES["step, error feedback"]
    state = tweed.attach(model, optimizer, strategy, bucket_bytes=400).state_dict()
    model, optimizer = make_mixed()
    run = tweed.attach(model, optimizer, strategy)
    with pytest.raises(UsageError, match="bucket_bytes"):
        run.load_state_dict(state)


def test_a_state_of_other_buckets_is_refused() -> None:
    run_ranks(load_what_does_not_fit, 1, backend="gloo")


def shown(rank: int, size: int) -> dict[str, list[list[Tensor]]]:
    """Per strategy: the model after five steps, what `averaged` shows, the model again, and once finished."""
    found = {}
    for name, strategy in STRATEGIES.items():
        model, optimizer = make_mixed()
        run = tweed.attach(model, optimizer, strategy)
        for number in range(5):
            step(model, optimizer, rank, number)
        before = params(model)
        with run.averaged():
            within = params(model)
        after = params(model)
        run.finish()
        found[name] = [before, within, after, params(model)]
    return found


@on_each_backend
def test_averaged_shows_one_model_and_takes_it_back_and_finish_leaves_one(backend: str) -> None:
    first, second = run_ranks(shown, 2, backend=backend)
    for name, strategy in STRATEGIES.items():
        (mine, within, mine_again, finished), (other, its_within, other_again, its_finished) = (
            first[name], second[name],
        )  # fmt: skip
        assert equal(mine, mine_again) and equal(other, other_again), name
        assert equal(within, its_within) and equal(finished, its_finished), name
        if strategy.memory is not None and strategy.memory.replicas_diverge:
            for one, two, mean in zip(mine, other, within, strict=True):
                true = (one.float() + two.float()) / 2
                torch.testing.assert_close(mean.float(), true, rtol=1e-2, atol=1e-6)


METHODS: dict[str, Codec] = {
    "all": Identity(), "half": Half(), "top-k": TopK(0.01), "random-k": RandomK(0.01),
    "random blocks": RandomBlocks(20),
}  # fmt: skip


def count(rank: int, size: int) -> dict[str, float]:
    """How many bytes per step were packed, by method."""
    counts = {}
    for name, method in METHODS.items():
        model = nn.Linear(300, 500)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run = tweed.attach(model, optimizer, Strategy(compress=ErrorFeedback(method)))
        for number in range(3):
            model(batch(rank, number, 300)).square().mean().backward()
        counts[name] = run.stats.bytes_packed / 3
    return counts


def test_bytes_are_those_of_the_formula() -> None:
    spec = Spec(((500,), (500, 300)))
    for counts in run_ranks(count, 2, backend="tweed"):
        for name, method in METHODS.items():
            assert counts[name] == pytest.approx(method.packet_bytes(spec), rel=0.01), name


BAD = [math.nan, math.inf, -math.inf]


def make_small() -> tuple[nn.Module, torch.optim.Optimizer]:
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
    model, optimizer = make_small()
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
    model, optimizer = make_small()
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
    model, _ = make_small()
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
        model, optimizer = make_small()
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
