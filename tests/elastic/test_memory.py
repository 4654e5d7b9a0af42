"""How many copies of the gradient a member needs at once: by the allocator of torch, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import TensorDataset

import tweed
from tweed.data.sampler import GlobalOrder, Sampler
from tweed.elastic import Control, Elastic, ElasticRun, start
from tweed.exchange.finite import is_finite

SIDE = 1024
NUMEL = SIDE * SIDE


def most_copies(fn: Callable[[], Any]) -> float:
    """The most memory that it had at once, besides what was there before, in copies of the gradient. Of what
    was there the allocator does not say when it is freed: so one step, and no more."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        fn()
    events: Any = seen.profiler.kineto_results.events()  # type: ignore[union-attr]
    now = most = 0
    for event in sorted((one for one in events if one.name() == "[memory]"), key=lambda one: one.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most / (4 * NUMEL)


@pytest.fixture
def control() -> Iterator[Control]:
    found = start(dist.HashStore(), 0, 1, Elastic(1, 1))
    yield found
    found.close()


def test_a_flat_loop_has_its_gradient_the_last_mean_and_the_sum(control: Control) -> None:
    """The last mean was there before."""
    run = ElasticRun(control, Sampler(GlobalOrder(60), 12))

    def step() -> None:
        run.step(lambda _: torch.ones(NUMEL))

    step()
    assert 1.9 < most_copies(step) < 2.1
    run.finish()


def test_a_plain_loop_has_two_copies_more_within_a_step(control: Control) -> None:
    """Of the model's gradients, which were there before, as was the last mean."""
    model = nn.Linear(SIDE, SIDE, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = tweed.attach(model, optimizer, elastic=control)
    batches = iter(run.batches(TensorDataset(torch.randn(60, SIDE)), 20, 12))

    def step() -> None:
        (x,) = next(batches)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    for _ in range(2):
        step()
    assert 1.9 < most_copies(step) < 2.4
    batches.close()  # type: ignore[attr-defined]
    run.detach()


@pytest.mark.parametrize("numel", [0, 3, (1 << 16) + 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_are_finite_in_all_pieces(numel: int, dtype: torch.dtype) -> None:
    values = torch.full([numel], 1e300 if dtype == torch.float64 else 1e30, dtype=dtype)
    assert is_finite(values)
    if numel:
        values[-1] = torch.inf
        assert not is_finite(values)
