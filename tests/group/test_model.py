"""Exchange of models, differences and steps: the numbers of one process; and checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import tweed
from tests.hooks import nets
from tests.hooks.nets import equal, floats, on_each_backend, step
from tweed.cadence import EveryStep, LocalSteps
from tweed.errors import StrategyError, UsageError
from tweed.hooks.run import Run
from tweed.recipes import local_steps
from tweed.strategy import Strategy
from tweed.testbed import run_ranks

STRATEGIES = {
    "model each step": Strategy(exchange="model", cadence=EveryStep()),
    "model every 3": local_steps(3),
    "difference every 3": Strategy(exchange="difference", cadence=LocalSteps(3)),
    "step each step": Strategy(exchange="step", cadence=EveryStep()),
}

make = partial(nets.make, hidden=4)


def average(models: Sequence[nn.Module]) -> None:
    for tensors in zip(*map(floats, models), strict=True):
        mean = torch.stack(tensors).mean(0)
        for tensor in tensors:
            tensor.copy_(mean)


def train_alone(size: int, every: int, steps: int) -> list[nn.Module]:
    """The models of `size` ranks after `steps`, averaged after each `every`."""
    first, _ = make()
    ranks = [deepcopy(first) for _ in range(size)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in ranks]
    for number in range(steps):
        for rank in range(size):
            step(ranks[rank], optimizers[rank], rank, number)
        if (number + 1) % every == 0:
            average(ranks)
    return ranks


def close(one: nn.Module, other: nn.Module) -> None:
    for mine, true in zip(floats(one), floats(other), strict=True):
        torch.testing.assert_close(mine, true)


def compare_with_alone(rank: int, size: int) -> None:
    for strategy in STRATEGIES.values():
        model, optimizer = make(rank)
        run = tweed.attach(model, optimizer, strategy, bucket_bytes=40)
        for number in range(7):
            step(model, optimizer, rank, number)
        every = getattr(strategy.cadence, "every", 1)
        assert (run.stats.steps, run.stats.exchanges) == (7, 7 // every)
        alone = train_alone(size, every, 7)
        close(model, alone[rank])
        run.finish()
        average(alone)
        close(model, alone[rank])
        run.detach()


@on_each_backend
@pytest.mark.parametrize("size", [2, 3])
def test_the_numbers_are_those_of_one_process(backend: str, size: int) -> None:
    run_ranks(compare_with_alone, size, backend=backend)


def models_after(rank: int, size: int, strategy: Strategy) -> list[list[Tensor]]:
    model, optimizer = make()
    run = tweed.attach(model, optimizer, strategy)
    shots = []
    for number in range(4):
        step(model, optimizer, rank, number)
        shots.append([tensor.clone() for tensor in floats(model)])
    run.finish()
    return [*shots, floats(model)]


@on_each_backend
@pytest.mark.parametrize("name", ["model every 3", "difference every 3"])
def test_models_agree_bit_for_bit_after_an_exchange_and_only_then(backend: str, name: str) -> None:
    by_rank = run_ranks(models_after, 3, STRATEGIES[name], backend=backend)
    agree = [all(equal(rank, shots[0]) for rank in shots) for shots in zip(*by_rank, strict=True)]
    assert agree == [False, False, True, False, True]


def finish_twice(rank: int, size: int) -> list[int]:
    model, optimizer = make()
    run = tweed.attach(model, optimizer, "local_steps(3)")
    exchanges = []
    for number in range(8):
        step(model, optimizer, rank, number)
        if number == 3:
            run.finish()
            run.finish()
        exchanges.append(run.stats.exchanges)
    with run.no_sync():
        step(model, optimizer, rank, 8)
    return exchanges


@on_each_backend
def test_finish_ends_a_round_once_and_training_may_go_on(backend: str) -> None:
    assert run_ranks(finish_twice, 2, backend=backend) == [[0, 0, 1, 2, 2, 2, 3, 3]] * 2


def stay_apart(rank: int, size: int) -> float:
    model, optimizer = make()
    tweed.attach(model, optimizer, Strategy(exchange="model"), sync_buffers=False)
    step(model, optimizer, rank, 0)
    return float(model[1].running_mean.sum())  # type: ignore[index]


@on_each_backend
def test_buffers_stay_local_if_asked_to(backend: str) -> None:
    first, second = run_ranks(stay_apart, 2, backend=backend)
    assert first != second


def load_what_does_not_fit(rank: int, size: int) -> None:
    model, optimizer = make()
    run = tweed.attach(model, optimizer, STRATEGIES["difference every 3"])
    state = run.state_dict()
    with pytest.raises(StrategyError, match=r"LocalSteps\(every=4.* but the run is of .*LocalSteps\(every=3"):
        run.load_state_dict({**state, "strategy": repr(local_steps(4))})
    with pytest.raises(UsageError, match="other shapes"):
        run.load_state_dict({**state, "exchange": {"anchor": state["exchange"]["anchor"][1:]}})
    with pytest.raises(UsageError, match="other schedules"):
        run.load_state_dict({**state, "plan": "star"})
    assert isinstance(run, Run)


def test_a_state_that_does_not_fit_is_refused() -> None:
    run_ranks(load_what_does_not_fit, 1, backend="gloo")
