"""Fragments that are exchanged while workers take further steps: beside a dozen lines of numpy, and laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from tests.simulate.problem import SIZE, loss, numbers, perceptron, sgd
from tweed.cadence import LocalSteps, Nesterov
from tweed.compress import Chain, Direct, ErrorFeedback, Half, LowRank, Memory, Quantise, Sign, TopK
from tweed.errors import UsageError
from tweed.simulate.workers import Workers
from tweed.strategy import Strategy

Array = NDArray[np.float64]
FEW = Chain(TopK(0.1), Quantise(4, nearest=True), bidirectional=True)
MEMORIES = [
    None,
    ErrorFeedback(TopK(0.2)),
    ErrorFeedback(FEW),
    ErrorFeedback(Sign()),
    ErrorFeedback(LowRank(2)),
    Direct(Half()),
]
ROUNDS = [
    LocalSteps(4, delay=1),
    LocalSteps(4, delay=4),
    LocalSteps(4, fragments=3),
    LocalSteps(4, delay=2, fragments=2),
    LocalSteps(3, delay=3, fragments=3),
]


def walked(rank: int, target: Array, x: Array) -> Array:
    """After a step of gradient descent on a quadratic of this rank's own."""
    return x - 0.1 * (1 + rank) * (x - target[rank])


def kept_largest(value: Array, count: int) -> Array:
    """Only the `count` largest values."""
    packet = np.zeros_like(value)
    largest = np.argsort(-np.abs(value))[:count]
    packet[largest] = value[largest]
    return packet


def by_hand(steps: int, every: int, delay: int, count: int, target: Array) -> Array:
    """The models after so many steps, one per row, by the rule: what was sent is replaced by the mean of what
    all have sent, `delay` steps later; the rest stays in the model, and in the residual."""
    ranks, size = target.shape
    x, start, residual = np.zeros((ranks, size)), np.zeros((ranks, size)), np.zeros((ranks, size))
    under_way: dict[int, Array] = {}
    for step in range(1, steps + 1):
        for rank in range(ranks):
            x[rank] = walked(rank, target, x[rank])
        if step in under_way:
            shift = under_way.pop(step)
            x, start = x + shift, start + shift
        if step % every == 0:
            pending = residual + x - start
            packets = np.stack([kept_largest(one, count) for one in pending])
            residual, start = pending - packets, x.copy()
            under_way[step + delay] = packets.mean(0) - packets
    return x


class Bowl(nn.Module):
    """A quadratic with its minimum at a target of each rank's own."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.zeros(size))


@pytest.mark.parametrize(("every", "delay"), [(4, 1), (4, 3), (4, 4), (1, 1)])
def test_it_is_what_a_dozen_lines_do(every: int, delay: int) -> None:
    target = np.random.default_rng(3).normal(size=(3, 20))
    strategy = Strategy("difference", LocalSteps(every, delay=delay), ErrorFeedback(TopK(0.2)))
    workers = Workers(Bowl(20), lambda params: torch.optim.SGD(params, lr=0.1), strategy, 3)
    wanted = torch.tensor(target, dtype=torch.float32)

    def bowl(rank: int, model: Any) -> torch.Tensor:
        distance: torch.Tensor = 0.5 * (1 + rank) * (model.x - wanted[rank]).square().sum()
        return distance

    for _ in range(23):
        workers.step(bowl)
    found = np.stack([worker.flat.values.numpy() for worker in workers.all])
    np.testing.assert_allclose(found, by_hand(23, every, delay, 4, target), atol=2e-5)


def train(memory: Memory[Any] | None, cadence: LocalSteps, steps: int, scale: float = 1.0) -> Workers:
    """Workers that took steps which do not depend on where their models stand."""
    workers = Workers(perceptron(), sgd, Strategy("difference", cadence, memory), SIZE)
    generator = torch.Generator().manual_seed(5)
    pulls = torch.randn(steps, SIZE, workers.all[0].flat.spec.numel, generator=generator)

    for step in range(steps):
        workers.step(lambda rank, model: scale * (_values(model) @ pulls[step, rank]))  # noqa: B023
    return workers


def _values(model: nn.Module) -> torch.Tensor:
    return torch.cat([param.flatten() for param in model.parameters()])


@pytest.mark.parametrize("cadence", ROUNDS, ids=repr)
@pytest.mark.parametrize("memory", MEMORIES[:4], ids=repr)
def test_the_mean_follows_the_path_without_compression(
    memory: Memory[Any] | None, cadence: LocalSteps
) -> None:
    """Whatever is under way or left out: of steps that are the same anywhere, the mean model has them all."""
    if isinstance(memory, ErrorFeedback) and memory.compressor.reply_codec is not None:
        pytest.skip("what a reply leaves out is kept by its owner")
    found = train(memory, cadence, 11, scale=0.01)
    plain = train(None, LocalSteps(1), 11, scale=0.01)
    expected, got = numbers(plain.average()), numbers(found.average())
    torch.testing.assert_close(got, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("steps", [11, 12])
@pytest.mark.parametrize("cadence", ROUNDS, ids=repr)
@pytest.mark.parametrize("memory", MEMORIES, ids=repr)
def test_at_the_end_all_have_one_model(memory: Memory[Any] | None, cadence: LocalSteps, steps: int) -> None:
    workers = Workers(perceptron(), sgd, Strategy("difference", cadence, memory), SIZE)
    for step in range(steps):
        workers.step(loss(step))
    average = numbers(workers.average())
    workers.finish()
    first = numbers(workers.all[0].model)
    for worker in workers.all[1:]:
        assert torch.equal(numbers(worker.model), first)
    if memory is None:
        torch.testing.assert_close(first, average, rtol=0, atol=1e-5)


def test_without_compression_a_round_counts_whole_after_its_delay() -> None:
    """Where all walk alike, nobody notices that there are others."""
    workers = Workers(perceptron(), sgd, Strategy("difference", LocalSteps(4, delay=2, fragments=2)), 3)
    alone = Workers(perceptron(), sgd, Strategy("difference", LocalSteps(4)), 1)
    for step in range(9):
        workers.step(lambda rank, model: loss(step)(0, model))  # noqa: B023
        alone.step(lambda rank, model: loss(step)(0, model))  # noqa: B023
    torch.testing.assert_close(numbers(workers.all[1].model), numbers(alone.all[0].model), rtol=0, atol=1e-6)


def test_an_outer_optimizer_moves_each_fragment() -> None:
    """With momentum 0 and a rate of 1 it is the plain mean."""
    results = []
    for outer in (None, Nesterov(1.0, 0.0)):
        workers = Workers(
            perceptron(), sgd, Strategy("difference", LocalSteps(4, outer, delay=2, fragments=2)), SIZE
        )
        for step in range(10):
            workers.step(loss(step))
        workers.finish()
        results.append(numbers(workers.all[0].model))
    torch.testing.assert_close(*results, rtol=0, atol=1e-6)


def test_a_model_with_larger_rows_than_fragments_is_refused() -> None:
    strategy = Strategy("difference", LocalSteps(8, fragments=8))
    with pytest.raises(UsageError, match="cannot be cut into fragments=8"):
        Workers(nn.Linear(50, 2, bias=False), sgd, strategy, 2)
