"""Virtual workers beside plain loops of torch."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from tests.simulate.problem import SIZE, loss, numbers, perceptron, sgd
from tweed.cadence import Intermittent, LocalSteps, Nesterov
from tweed.compress import ErrorFeedback, Identity, TopK
from tweed.errors import UsageError
from tweed.recipes import every_step, lag, local_steps, ordered_gradient
from tweed.simulate.flat import Flat
from tweed.simulate.workers import Workers
from tweed.strategy import Strategy

STEPS = 12


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def train(strategy: Strategy, steps: int = STEPS, size: int = SIZE) -> Workers:
    workers = Workers(perceptron(), sgd, strategy, size)
    for step in range(steps):
        workers.step(loss(step))
    return workers


def plain(steps: int = STEPS) -> nn.Module:
    """Synchronous SGD, written down directly."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        (sum(loss(step)(rank, model) for rank in range(SIZE)) / SIZE).backward()
        optimizer.step()
    return model


def spread(workers: Workers) -> float:
    first = workers.all[0].flat.values
    return max(float((worker.flat.values - first).abs().max()) for worker in workers.all)


@pytest.mark.parametrize("exchange", ["gradient", "step", "difference", "model"])
def test_without_compression_it_is_synchronous_sgd(exchange: str) -> None:
    workers = train(Strategy(exchange=exchange))  # type: ignore[arg-type]
    expected = numbers(plain())
    for worker in workers.all:
        torch.testing.assert_close(numbers(worker.model), expected, rtol=0, atol=2e-6)
    assert workers.exchanges == STEPS
    assert spread(workers) == 0


def test_one_worker_trains_as_if_alone() -> None:
    workers = train(every_step(), size=1)
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(step)(0, model).backward()
        optimizer.step()
    assert torch.equal(numbers(workers.all[0].model), numbers(model))


@pytest.mark.parametrize("strategy", [local_steps(5), Strategy("difference", LocalSteps(5))])
def test_local_steps_meet_every_round_and_at_the_end(strategy: Strategy) -> None:
    workers = Workers(perceptron(), sgd, strategy, SIZE)
    for step in range(STEPS):
        workers.step(loss(step))
        assert (spread(workers) == 0) == ((step + 1) % 5 == 0)
    middle = sum(worker.flat.values for worker in workers.all) / SIZE
    torch.testing.assert_close(numbers(workers.average()), middle)
    workers.finish()
    assert spread(workers) == 0 and workers.exchanges == 3
    torch.testing.assert_close(workers.all[0].flat.values, middle)


@pytest.mark.parametrize("exchange", ["gradient", "step"])
def test_what_is_fed_back_is_said_or_owed(exchange: str) -> None:
    workers = Workers(
        perceptron(),
        lambda params: torch.optim.SGD(params, lr=0.1),
        Strategy(exchange, compress=ErrorFeedback(TopK(0.1))),  # type: ignore[arg-type]
        SIZE,
    )
    start = workers.all[0].flat.values.clone()
    moved = torch.zeros_like(start)
    for step in range(STEPS):
        before = [worker.flat.values.clone() for worker in workers.all]
        workers.step(loss(step))
        for rank, numbers_before in enumerate(before):
            alone = _moved(numbers_before, rank, step)
            moved += alone / SIZE
    owed = sum(worker.buffer.state.error for worker in workers.all) / SIZE
    scale = -0.1 if exchange == "gradient" else 1.0
    torch.testing.assert_close(workers.all[0].flat.values - start + scale * owed, moved, rtol=0, atol=1e-6)
    assert spread(workers) == 0


def _moved(before: torch.Tensor, rank: int, step: int) -> torch.Tensor:
    """By how much a worker's own gradient moves the model."""
    model = perceptron()
    flat = Flat(model)
    flat.values.copy_(before)
    loss(step)(rank, model).backward()
    return -0.1 * flat.grads


def test_bytes_are_those_of_packets() -> None:
    numel = train(every_step(), 0).all[0].flat.values.numel()
    dense = train(every_step()).traffic
    assert dense.up_bytes == dense.down_bytes == STEPS * 4 * numel
    sparse = train(Strategy(compress=ErrorFeedback(TopK(0.1)))).traffic
    said = STEPS * 8 * round(0.1 * numel)
    assert said <= sparse.up_bytes <= said + STEPS * 16 * SIZE  # a header per range
    assert sparse.up_bytes < sparse.down_bytes <= SIZE * sparse.up_bytes  # others said other numbers


def test_a_bare_compressor_has_no_memory() -> None:
    bare, none = train(Strategy(compress=Identity())), train(every_step())
    assert torch.equal(bare.all[0].flat.values, none.all[0].flat.values)


def test_an_outer_optimiser_turns_the_mean_movement_of_a_round() -> None:
    workers = train(Strategy("difference", LocalSteps(4, outer=Nesterov(lr=1.0, momentum=0.0))))
    assert torch.equal(
        workers.all[0].flat.values, train(Strategy("difference", LocalSteps(4))).all[0].flat.values
    )
    further = train(Strategy("difference", LocalSteps(4, outer=Nesterov())), 8)
    torch.testing.assert_close(further.all[1].flat.values, by_hand())


def by_hand() -> torch.Tensor:
    """Two rounds of DiLoCo."""
    rounds = Workers(perceptron(), sgd, Strategy("difference", LocalSteps(4)), SIZE)
    there, momentum = rounds.all[0].flat.values.clone(), torch.zeros_like(rounds.all[0].flat.values)
    for step in range(8):
        rounds.step(loss(step))
        if (step + 1) % 4 == 0:
            mean = rounds.all[0].flat.values - there
            momentum = 0.9 * momentum + mean
            there = there + 0.7 * (mean + 0.9 * momentum)
            for worker in rounds.all:
                worker.flat.values.copy_(there)
                worker.reference.copy_(there)
    return there


def test_who_draws_no_lot_is_silent() -> None:
    silent = train(Strategy(cadence=Intermittent(1, 0.5), compress=ErrorFeedback(TopK(0.1))))
    always = train(Strategy(compress=ErrorFeedback(TopK(0.1))))
    assert silent.exchanges == always.exchanges == STEPS
    assert 0.2 < silent.traffic.up_bytes / always.traffic.up_bytes < 0.8
    assert spread(silent) == 0


def test_a_cadence_that_weighs_is_told_what_there_is_to_say() -> None:
    workers = train(lag(0.1, SIZE), 30)
    dense = train(Strategy(compress=Identity(by_ranges=True)), 30)
    assert 0 < workers.traffic.up_bytes < dense.traffic.up_bytes
    assert spread(workers) == 0


def test_what_hears_ranks_one_by_one_is_simulated_elsewhere() -> None:
    with pytest.raises(UsageError, match="hears ranks one by one"):
        train(ordered_gradient())


def test_flat_numbers_are_the_model_in_its_own_memory_format() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(3, 2)).to(
        memory_format=torch.channels_last
    )
    other = copy.deepcopy(model)
    flat = Flat(model)
    x = torch.randn(5, 2, 3, 3)
    assert torch.equal(model(x), other(x))
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert mine.stride() == theirs.stride()
    for one in (model, other):
        one(x).square().sum().backward()
    flat.param.data.add_(flat.grads, alpha=-1.0)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs - theirs.grad)
    assert flat.spec.sizes == tuple(param.numel() for param in other.parameters())


def test_half_precision_is_refused() -> None:
    with pytest.raises(UsageError, match="float32 models only"):
        Flat(nn.Linear(2, 2).half())
