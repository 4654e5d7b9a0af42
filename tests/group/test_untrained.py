"""One model at the end, also of what has no gradient: teachers, masks, counters, complex values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tweed
from tests.hooks.nets import on_each_backend
from tweed.errors import UsageError
from tweed.testbed import run_ranks

GRADIENTS = ("every_step", "top_k:0.1")
MODELS = ("local_steps:2", "diloco:2", "local_top_k:2", "cser", "saef")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.student, self.teacher = nn.Linear(3, 2), nn.Linear(3, 2).requires_grad_(False)
        lowest = torch.finfo(torch.float16).min
        self.register_buffer("mask", torch.full((3, 3), -torch.inf).triu(1))
        self.register_buffer("half_mask", torch.full((3, 3), lowest, dtype=torch.float16).triu(1))
        self.register_buffer("tenths", torch.full((7,), 0.1, dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64), persistent=False)
        self.register_buffer("wave", torch.zeros(2, dtype=torch.complex64))
        self.register_buffer("flag", torch.tensor([True, False]))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            for kept, new in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                kept.mul_(0.9).add_(new, alpha=0.1)
            self.mean = self.mean + x.mean() + 1  # a new buffer object each time
            self.count += int(x.sum() > 0) + 1
            self.wave.add_(x.sum() * 1j)
        return self.student(x)


def trains(rank: int, size: int, strategy: str) -> dict[str, Any]:
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    torch.manual_seed(1 + rank)
    with tweed.attach(model, optimizer, strategy):
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()
    return {name: one.detach().clone() for name, one in [*model.named_parameters(), *model.named_buffers()]}


@pytest.mark.parametrize("strategy", [*GRADIENTS, *MODELS])
def test_all_of_a_model_is_one_at_the_end(strategy: str) -> None:
    first, *others = run_ranks(trains, 3, strategy, backend="gloo")
    for name, value in first.items():
        assert all(torch.equal(value, other[name]) for other in others), name
    torch.manual_seed(0)
    before = Net()
    for name in ("mask", "half_mask", "tenths", "flag"):
        assert torch.equal(first[name], getattr(before, name)), name
    assert first["mean"].abs().min() > 0 and first["wave"].imag.abs().min() > 0 and first["count"] >= 5
    assert not torch.equal(first["teacher.weight"], before.teacher.weight)


def mean_of(rank: int, size: int) -> list[Tensor]:
    """Local steps that move nothing: what becomes of values that differ."""
    torch.manual_seed(0)
    model = Net()
    with tweed.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), "local_steps:1"), torch.no_grad():
        model.teacher.weight.fill_([0.1, 0.2, 0.6][rank])
        model.half_mask[0, 0] = [60000.0, 65504.0, 65000.0][rank]  # whose sum float16 cannot hold
        model.wave.fill_(complex(rank, 3 - rank))
        model.count.fill_(2**60 + rank)
    return [model.teacher.weight[0, 0], model.half_mask[0], model.wave[0], model.count]


@on_each_backend
def test_what_differs_becomes_the_mean_or_where_there_is_none_the_first_ranks(backend: str) -> None:
    lowest = torch.finfo(torch.float16).min
    for teacher, mask, wave, count in run_ranks(mean_of, 3, backend=backend):
        assert float(teacher) == pytest.approx(0.3, abs=1e-7)
        assert mask.tolist() == [pytest.approx(63488.0, abs=32), lowest, lowest]
        assert complex(wave) == pytest.approx(1 + 2j)
        assert int(count) == 2**60


def sends(rank: int, size: int) -> tuple[int, int]:
    """Bytes of a finish after which nothing, or a teacher, has moved."""
    model = nn.ModuleList([nn.Linear(2, 1), nn.Linear(500, 500).requires_grad_(False)])
    run = tweed.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), "local_steps:1")
    found = []
    for moved in (False, True):
        before = run.stats.bytes_exchanged
        if moved:
            model[1].weight.data.add_(rank)
        run.finish()
        found.append(run.stats.bytes_exchanged - before)
    run.detach()
    return found[0], found[1]


def test_what_is_equal_costs_a_comparison_and_no_bytes_of_its_own() -> None:
    for still, moved in run_ranks(sends, 2, backend="gloo"):
        assert still < 200 and moved > 4 * 250_000


def comes(rank: int, size: int) -> str:
    """At one rank the model gets a buffer that it did not have."""
    model = nn.Linear(2, 1)
    run = tweed.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), "local_steps:2")
    if rank == 0:
        model.register_buffer("late", torch.zeros(3))
    try:
        run.finish()
    except UsageError as error:
        return str(error)
    finally:
        run.detach()
    return ""


def test_a_buffer_that_comes_is_refused_at_all_ranks() -> None:
    for heard in run_ranks(comes, 2, backend="gloo"):
        assert "'late' of the model, which is not trained, has come, left or changed its shape" in heard


def changes(rank: int, size: int, strategy: str) -> str:
    """One rank gives a parameter that is not trained another shape, or all ranks a trained one."""
    model = nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 2).requires_grad_(False)])
    model.register_buffer("seen", torch.zeros(3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = tweed.attach(model, optimizer, strategy)
    if rank == 1:
        model[0].double()
    try:
        dtype = model[0].weight.dtype
        model[0](torch.ones(1, 2, dtype=dtype)).sum().backward()
        optimizer.step()
        run.finish()
    except UsageError as error:
        return str(error)
    finally:
        run.detach()
    return ""


@pytest.mark.parametrize("strategy", [*GRADIENTS, *MODELS])
@on_each_backend
def test_a_rank_that_changes_alone_is_refused_at_all(strategy: str, backend: str) -> None:
    own = "parameter '0.weight' was float32[1, 2] on cpu and is float64[1, 2] on cpu since attach"
    first, second, third = run_ranks(changes, 3, strategy, backend=backend)
    assert own in second
    assert all("rank 1 cannot take part" in other and own in other for other in (first, third))
