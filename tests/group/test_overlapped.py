"""Movements that are exchanged while ranks take further steps, live."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tweed
from tests.hooks.nets import on_each_backend
from tweed.cadence import LocalSteps, Nesterov
from tweed.compress import Chain, Direct, ErrorFeedback, Half, LowRank, Quantise, Sign, TopK
from tweed.errors import NonFinite, StrategyError, UsageError
from tweed.simulate.workers import Workers
from tweed.strategy import Strategy
from tweed.testbed import run_ranks

SIZE, STEPS = 3, 14
FEW = Chain(TopK(0.1), Quantise(4, nearest=True), bidirectional=True)


def strategies() -> list[Strategy]:
    return [
        Strategy("difference", LocalSteps(4, delay=2)),
        Strategy("difference", LocalSteps(4, delay=1, fragments=3), ErrorFeedback(TopK(0.2))),
        Strategy("difference", LocalSteps(3, delay=3), ErrorFeedback(FEW)),
        Strategy("difference", LocalSteps(4, delay=3, fragments=4), ErrorFeedback(Sign())),
        Strategy("difference", LocalSteps(4, delay=4, fragments=2), ErrorFeedback(LowRank(2))),
        Strategy("difference", LocalSteps(4, fragments=2), Direct(Half())),
        Strategy("difference", LocalSteps(4, Nesterov(), delay=2, fragments=2)),
    ]


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 8))


def batch(rank: int, step: int) -> Tensor:
    return torch.randn(8, 12, generator=torch.Generator().manual_seed(100 * rank + step))


def loss(rank: int, step: int, model: Any) -> Tensor:
    x = batch(rank, step)
    squares: Tensor = (model(x) - x[:, :8]).square().sum()
    return squares


def values(model: nn.Module) -> Tensor:
    return torch.cat([param.detach().flatten() for param in model.parameters()])


class Training:
    """A rank's, which stands after `step` steps."""

    def __init__(self, rank: int, strategy: Strategy, model: nn.Module | None = None) -> None:
        self.rank, self.step, self.model = rank, 0, network() if model is None else model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.run = tweed.attach(self.model, self.optimizer, strategy, bucket_bytes=500)

    def go(self, steps: int) -> None:
        for _ in range(steps):
            self.optimizer.zero_grad()
            loss(self.rank, self.step, self.model).backward()
            self.optimizer.step()
            self.step += 1


def trained(rank: int, size: int, at: int) -> tuple[Tensor, Tensor, Tensor]:
    """The model before the end, the average then, and the model at the end."""
    training = Training(rank, strategies()[at])
    training.go(STEPS)
    own = values(training.model)
    with training.run.averaged():
        average = values(training.model)
    assert torch.equal(values(training.model), own)
    training.run.finish()
    return own, average, values(training.model)


@on_each_backend
@pytest.mark.parametrize("at", range(len(strategies())))
def test_ranks_do_as_virtual_workers(backend: str, at: int) -> None:
    found = run_ranks(trained, SIZE, at, backend=backend)
    workers = Workers(network(), lambda params: torch.optim.SGD(params, lr=0.01), strategies()[at], SIZE)
    for step in range(STEPS):
        workers.step(lambda rank, model: loss(rank, step, model))  # noqa: B023
    if at in (0, 6):  # of several buckets a codec takes other values, and Gloo rounds sums of 16 bits
        for worker, (own, average, _) in zip(workers.all, found, strict=True):
            torch.testing.assert_close(own, values(worker.model), rtol=0, atol=1e-5)
            torch.testing.assert_close(average, values(workers.average()), rtol=0, atol=1e-5)
    assert all(torch.equal(found[0][2], end) for _, _, end in found)
    assert max(float((found[0][0] - own).abs().max()) for own, _, _ in found) > 0


def interrupted(rank: int, size: int, at: int, stop: int) -> bool:
    """Whether training goes on bit by bit from a checkpoint, and from one where none was taken."""
    whole = Training(rank, strategies()[at])
    whole.go(stop)
    kept = whole.run.state_dict()
    model = {name: value.clone() for name, value in whole.model.state_dict().items()}
    whole.go(STEPS - stop)
    expected = values(whole.model)
    whole.run.detach()

    again = Training(rank, strategies()[at])
    again.model.load_state_dict(model)
    again.run.load_state_dict(kept)
    again.step = stop
    again.go(STEPS - stop)
    resumed = torch.equal(values(again.model), expected)
    again.run.detach()

    plain = Training(rank, strategies()[at])
    plain.go(STEPS)
    return resumed and torch.equal(values(plain.model), expected)


@pytest.mark.parametrize("stop", [4, 5, 6, 7])
@pytest.mark.parametrize("at", range(len(strategies())))
def test_a_checkpoint_with_exchanges_under_way_changes_nothing(at: int, stop: int) -> None:
    assert run_ranks(interrupted, SIZE, at, stop, backend="tweed") == [True] * SIZE


def broken(rank: int, size: int, at: int) -> tuple[int, bool]:
    """The step after which all have heard that a value of rank 1 is not finite; and whether all became so."""
    training = Training(rank, strategies()[at])
    training.go(3)
    param = next(training.model.parameters()).detach()
    kept = float(param[0, 0])
    if rank == 1:
        param[0, 0] = math.nan
    step = 3
    for step in range(3, 9):
        if step > 3 and rank == 1:
            param.nan_to_num_(kept)
        try:
            training.optimizer.zero_grad()
            (0.0 * training.model(batch(rank, step))).nan_to_num().sum().backward()
            for one in training.model.parameters():
                one.grad = torch.zeros_like(one)
            training.optimizer.step()
        except NonFinite as error:
            assert "'0.weight' on rank 1" in str(error)
            break
    param.nan_to_num_(kept)
    training.run.finish()
    return step, bool(values(training.model).isfinite().all())


def test_all_hear_of_a_value_that_is_not_finite_and_go_on() -> None:
    found = run_ranks(broken, SIZE, 0, backend="tweed")
    assert len(set(found)) == 1
    assert found[0][0] < 8
    assert found[0][1]


def moved_by_hand(rank: int, size: int) -> tuple[Tensor, int]:
    """The model after the loop has moved it, and the bytes that an end costs where nothing has moved."""
    training = Training(rank, strategies()[1])
    training.go(4)
    training.run.finish()
    with torch.no_grad():
        next(training.model.parameters()).add_(rank)
    training.run.finish()
    before = training.run.stats.bytes_exchanged
    training.run.finish()
    return values(training.model), training.run.stats.bytes_exchanged - before


def test_what_a_loop_moves_by_hand_counts_with_its_mean() -> None:
    found = run_ranks(moved_by_hand, SIZE, backend="tweed")
    without = run_ranks(trained_four, SIZE, backend="tweed")[0]
    assert all(torch.equal(found[0][0], one) for one, _ in found)
    torch.testing.assert_close(found[0][0][:192], without[:192] + 1, rtol=0, atol=1e-5)
    torch.testing.assert_close(found[0][0][192:], without[192:], rtol=0, atol=0)
    assert all(cost < 1000 for _, cost in found)


def trained_four(rank: int, size: int) -> Tensor:
    training = Training(rank, strategies()[1])
    training.go(4)
    training.run.finish()
    return values(training.model)


def with_buffers(rank: int, size: int) -> tuple[bool, bool]:
    """Whether batch norm's statistics differ amid a round, and whether all have the same in the end."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8))
    training = Training(rank, strategies()[0], model)
    training.go(7)
    means = model[1].running_mean
    assert isinstance(means, Tensor)
    amid = training.run.stats.exchanges
    training.go(2)
    training.run.finish()
    return amid > 0, bool(means.isfinite().all())


def test_statistics_are_averaged_too() -> None:
    assert run_ranks(with_buffers, SIZE, backend="tweed") == [(True, True)] * SIZE


@pytest.mark.parametrize(
    ("give", "words"),
    [
        (lambda: LocalSteps(4, delay=5), "from 0 to every=4"),
        (lambda: LocalSteps(4, delay=True), "from 0 to every=4"),
        (lambda: LocalSteps(4, fragments=5), "from 1 to every=4"),
        (lambda: LocalSteps(4, fragments=0), "from 1 to every=4"),
        (lambda: LocalSteps(4, proximal=0.1, delay=1), "proximal=0.1 pulls the whole model"),
    ],
)
def test_settings_that_cannot_be(give: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        give()


@pytest.mark.parametrize(
    ("give", "words"),
    [
        (lambda: Strategy("model", LocalSteps(4, delay=1)), "models go on during an exchange"),
        (
            lambda: Strategy("difference", LocalSteps(4, delay=1), tweed.recipes.saef().memory),
            "would count twice",
        ),
        (
            lambda: Strategy("difference", LocalSteps(4, fragments=2), collective=tweed.collective.Hub(0)),
            "without outer, delay and fragments",
        ),
    ],
)
def test_what_does_not_go_with_it(give: Any, words: str) -> None:
    with pytest.raises(StrategyError, match=words):
        give()
