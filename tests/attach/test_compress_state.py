"""What compressed exchanges keep: exact resume, one model at the end, the average model, and counts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import tweed
from tests.attach.nets import batch, equal, make_mixed, on_each_backend, params, resumes, step
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


def resume_all(rank: int, size: int) -> list[str]:
    return [
        f"{name} after {at}, finished: {finish}"
        for name, strategy in STRATEGIES.items()
        for at, finish in ((3, False), (4, False), (3, True))
        if not resumes(rank, strategy, make_mixed, at, finish, bucket_bytes=400)
    ]


@on_each_backend
def test_a_resumed_run_is_exact(backend: str) -> None:
    assert run_ranks(resume_all, 2, backend=backend) == [[], []]


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
            model(batch(rank, number, 300)).square().mean().backward()
        counts[name] = run.stats.bytes_packed / 3
    return counts


def test_bytes_are_those_of_the_formula() -> None:
    spec = Spec(((500,), (500, 300)))
    for counts in run_ranks(count, 2, backend="tweed"):
        for name, method in METHODS.items():
            assert counts[name] == pytest.approx(method.packet_bytes(spec), rel=0.01), name
