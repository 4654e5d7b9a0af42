"""Exchange of gradients: the numbers of one process that does all ranks' work, and those of DDP."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import tweed
from tests.hooks.nets import equal, on_each_backend, params
from tests.torch.naive import check, failures_of
from tweed.errors import PeerLost
from tweed.testbed import Failed, Ranks, Said, run_ranks, say

STEPS = 3


class Net(nn.Module):
    """Two ways to the output, mixed dtypes, a tied layer, and one that nobody uses."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.inlet = nn.Linear(6, 8)
        self.left = nn.Linear(8, 8)
        self.right = nn.Linear(8, 8)
        self.tied = nn.Linear(8, 8)
        self.tied.weight = self.left.weight
        self.wide = nn.Linear(8, 4).double()
        self.idle = nn.Linear(2, 2)

    def forward(self, x: Tensor, way: str) -> Tensor:
        x = torch.tanh(self.inlet(x))
        for part in way.split():
            x = torch.tanh(self.run(part, x))
        return self.wide(x.double()).square().mean()

    def run(self, part: str, x: Tensor) -> Tensor:
        name, _, mode = part.partition("/")
        layer = getattr(self, name)
        return checkpoint(layer, x, use_reentrant=mode == "reentrant") if mode else layer(x)


def every(way: str) -> Callable[[int, int], list[str]]:
    """The same way on every rank, one backward pass per step."""
    return lambda rank, step: [way]


@dataclass
class Case:
    """What ranks do in each step.

    `ways`: for rank and step, the way through the net of each backward pass; `quiet`: how many of the first
    of them are accumulated; `clear`: arguments of `zero_grad`.
    """

    ways: Callable[[int, int], list[str]] = field(default_factory=lambda: every("left right tied"))
    quiet: int = 0
    clear: dict[str, Any] = field(default_factory=dict)
    bucket_bytes: int = 300


CASES = {
    "plain": Case(),
    "one bucket": Case(bucket_bytes=2**20),
    "a bucket per parameter": Case(bucket_bytes=1),
    "zeroed gradients": Case(clear={"set_to_none": False}),
    "another order on each rank": Case(
        lambda rank, step: [["left right", "right left", "tied right left"][rank]]
    ),
    "used by one rank only": Case(lambda rank, step: ["left right" if rank == 1 else "left"]),
    "used in some steps only": Case(lambda rank, step: ["left right" if step == 1 else "left"]),
    "no backward pass on one rank": Case(lambda rank, step: ["left right"] if rank else []),
    "no backward pass at all": Case(lambda rank, step: []),
    "two backward passes": Case(lambda rank, step: ["left right", "right left"]),
    "two backward passes, zeroed": Case(
        lambda rank, step: ["left", "right left"], clear={"set_to_none": False}
    ),
    "accumulated": Case(lambda rank, step: ["left", "right left", "tied"], quiet=2),
    "accumulated on other ways": Case(lambda rank, step: [["left", "right"][rank % 2], "tied"], quiet=1),
    "accumulated to the step": Case(lambda rank, step: ["left", "right"], quiet=2),
    "checkpoints": Case(every("left/plain right/plain")),
    "reentrant checkpoints": Case(every("left/reentrant right/reentrant")),
    "reentrant checkpoint first": Case(every("right left/reentrant")),
}


def loss(model: nn.Module, way: str, rank: int, step: int) -> Tensor:
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(100 * step + rank), requires_grad=True)
    return model(x, way)


def train_attached(case: Case, rank: int, model: Net) -> Iterator[list[Tensor | None]]:
    """Trains; gives the gradients of each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    run = tweed.attach(model, optimizer, bucket_bytes=case.bucket_bytes)
    for step in range(STEPS):
        for number, way in enumerate(case.ways(rank, step)):
            with run.no_sync() if number < case.quiet else nullcontext():
                loss(model, way, rank, step).backward()
        optimizer.step()
        yield gradients(model)
        optimizer.zero_grad(**case.clear)
    assert run.stats.steps == STEPS


def train_alone(case: Case, size: int, model: Net) -> Iterator[list[Tensor | None]]:
    """Does the work of all ranks in turn and averages their gradients by hand."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for step in range(STEPS):
        by_rank = []
        for rank in range(size):
            model.zero_grad()
            for way in case.ways(rank, step):
                loss(model, way, rank, step).backward()
            by_rank.append(gradients(model))
        for param, given in zip(model.parameters(), zip(*by_rank, strict=True), strict=True):
            some = [grad for grad in given if grad is not None]
            param.grad = sum(some, start=torch.zeros_like(param)) / size if some else None
        optimizer.step()
        yield gradients(model)


def gradients(model: nn.Module) -> list[Tensor | None]:
    return [None if param.grad is None else param.grad.clone() for param in model.parameters()]


def compare_with_alone(rank: int, size: int, case: Case) -> None:
    ours, alone = Net(), Net()
    trained = zip(train_attached(case, rank, ours), train_alone(case, size, alone), strict=True)
    for step, (ours_given, alone_given) in enumerate(trained):
        for mine, true in zip(ours_given, alone_given, strict=True):
            zeroed = bool(case.clear) and step > 0  # then what was used once has a gradient for ever
            assert (mine is None) == (true is None) or zeroed
            if mine is not None:
                torch.testing.assert_close(mine, torch.zeros_like(mine) if true is None else true)
    for mine, true in zip(ours.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(mine, true)


def compare_all(rank: int, size: int) -> dict[str, str]:
    """What went wrong in which case. All in one set of ranks, which is what takes the time."""
    cases = {name: partial(compare_with_alone, case=case) for name, case in CASES.items()}
    return failures_of(cases, rank, size)


@pytest.fixture(scope="module", params=[*product(["gloo", "tweed"], (2, 3))], ids=str)
def wrong_by_rank(request: pytest.FixtureRequest) -> list[dict[str, str]]:
    backend, size = request.param
    return run_ranks(compare_all, size, backend=backend)


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_those_of_one_process(wrong_by_rank: list[dict[str, str]], case: str) -> None:
    check(case, wrong_by_rank)


class Picture(nn.Module):
    """A convolution, batch norm, and a layer that is not used: what DDP has options for."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.conv = nn.Conv2d(2, 4, 3).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(4)
        self.out = nn.Linear(4 * 9, 5)
        self.idle = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.relu(self.norm(self.conv(x))).flatten(1))


def train_picture(rank: int, with_ddp: bool, optimizer_of: Callable[..., Any]) -> list[Tensor]:
    model = Picture()
    optimizer = optimizer_of(model.parameters(), lr=0.01)
    if with_ddp:
        forward: nn.Module = DistributedDataParallel(model, find_unused_parameters=True)
    else:
        forward = model
        tweed.attach(model, optimizer, bucket_bytes=500)
    data = torch.Generator().manual_seed(rank)
    for _ in range(STEPS):
        x, y = torch.randn(6, 2, 5, 5, generator=data), torch.randint(5, (6,), generator=data)
        nn.functional.cross_entropy(forward(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
    # DDP hands rank 0's buffers to the others only before the next forward pass.
    return [tensor.detach() for tensor in (model.state_dict().values() if rank == 0 else model.parameters())]


def train_half(rank: int, with_ddp: bool) -> list[Tensor]:
    """Gradients so small that float16 rounds them: halved before the sum or after it is not the same."""
    torch.manual_seed(1)
    model = nn.Linear(64, 64).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    forward = DistributedDataParallel(model) if with_ddp else model
    if not with_ddp:
        tweed.attach(model, optimizer)
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(rank)).half()
    (forward(x).sum() * 1e-7).backward()
    grads = [param.grad for param in model.parameters() if param.grad is not None]
    assert len(grads) == 2 and all(grad.count_nonzero() > 0 for grad in grads)
    return grads


def equal_to_ddp(rank: int, size: int) -> list[bool]:
    pairs = [
        (train_picture(rank, False, optimizer), train_picture(rank, True, optimizer))
        for optimizer in (torch.optim.SGD, torch.optim.Adam)
    ]
    pairs.append((train_half(rank, False), train_half(rank, True)))
    return [torch.equal(mine, theirs) for pair in pairs for mine, theirs in zip(*pair, strict=True)]


@on_each_backend
def test_two_ranks_are_bit_equal_to_ddp_also_where_float16_ends(backend: str) -> None:
    assert all(map(all, run_ranks(equal_to_ddp, 2, backend=backend)))


def buffers_are_rank_0s_at_the_start_and_after_each_step(rank: int, size: int) -> list[Tensor]:
    model = Picture()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.no_grad():
        model.norm.running_mean.fill_(rank)  # type: ignore[union-attr]
    tweed.attach(model, optimizer)
    before = [buffer.clone() for buffer in model.buffers()]
    model(torch.randn(6, 2, 5, 5, generator=torch.Generator().manual_seed(rank))).sum().backward()
    optimizer.step()
    after = list(model.buffers())
    assert before[0].tolist() == [0.0] * 4 != after[0].tolist()
    return [*before, *after]


def models_start_from_rank_0(rank: int, size: int) -> list[Tensor]:
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 0), nn.Linear(4, 2, dtype=torch.bfloat16))
    tweed.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return params(model)


def an_optimizer_with_a_closure_exchanges_in_each_call(rank: int, size: int) -> list[Tensor]:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    run = tweed.attach(model, optimizer)
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(rank))
    calls = 0

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        optimizer.zero_grad()
        model(x).square().mean().backward()
        return torch.tensor(1.0)  # every rank must take the same line search

    optimizer.step(closure)
    assert run.stats.exchanges == calls > 1
    return [torch.tensor(calls), *params(model)]


ALIKE = [
    buffers_are_rank_0s_at_the_start_and_after_each_step,
    models_start_from_rank_0,
    an_optimizer_with_a_closure_exchanges_in_each_call,
]


@on_each_backend
@pytest.mark.parametrize("what", ALIKE)
def test_all_ranks_have_the_same(backend: str, what: Callable[[int, int], list[Tensor]]) -> None:
    first, *others = run_ranks(what, 3, backend=backend)
    assert all(equal(first, other) for other in others)


def memories(model: nn.Module) -> set[int]:
    """Where the gradients lie."""
    given = [param.grad for param in model.parameters() if param.grad is not None]
    return {grad.untyped_storage().data_ptr() for grad in given}


def look_at_views(rank: int, size: int) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = tweed.attach(model, optimizer)
    model(torch.ones(1, 3)).sum().backward()
    assert len(memories(model)) == 1, "gradients lie in one bucket"
    assert run.stats.exchanges == 1
    assert run.stats.bytes_exchanged == (4 + 8 + 3) * 4, "half the start, gradients, a mark each and one more"
    run.detach()
    assert len(memories(model)) == 2, "gradients are tensors of their own again"
    model(torch.full((1, 3), float(rank))).sum().backward()
    assert model.weight.grad is not None
    assert model.weight.grad[0, 0].item() == 1 + rank, "nothing is exchanged any more"
    optimizer.step()
    tweed.attach(model, optimizer).detach()


@on_each_backend
def test_gradients_are_views_until_detach(backend: str) -> None:
    run_ranks(look_at_views, 2, backend=backend)


def lose_rank_1(rank: int, size: int) -> None:
    model = nn.Linear(3, 2)
    tweed.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        model(torch.ones(1, 3)).sum().backward()
    except PeerLost as lost:
        say(str(lost))


def test_a_lost_rank_is_named_by_backward_on_every_survivor() -> None:
    with Ranks(lose_rank_1, 3, backend="tweed") as ranks:
        events = []
        while ranks.running():
            events += ranks.poll()
    assert [event.rank for event in events if isinstance(event, Failed)] == [1]
    said = {event.rank: event.value for event in events if isinstance(event, Said)}
    assert sorted(said) == [0, 2]
    assert all("rank 1" in text and "all_reduce" in text for text in said.values())


def train_wide(rank: int, size: int) -> list[int]:
    torch.manual_seed(2)
    model = nn.Sequential(*[nn.Linear(600, 600, bias=False) for _ in range(3)])
    run = tweed.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), bucket_bytes=2**21)
    for _ in range(2):
        model(torch.full((1, 600), float(rank + 1))).sum().backward()
    alone = torch.nn.Sequential(*[nn.Linear(600, 600, bias=False) for _ in range(3)])
    alone.load_state_dict(model.state_dict())
    alone(torch.full((1, 600), (size + 1) / 2)).sum().mul(2).backward()
    for mine, true in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, true.grad, rtol=1e-4, atol=1e-4)
    return [run.stats.exchanges, run.stats.bytes_exchanged]


@on_each_backend
def test_buckets_of_megabytes_cross_as_well(backend: str) -> None:
    first, second = run_ranks(train_wide, 2, backend=backend, timeout=20)
    assert first == second == [2, 5 * 3 * 600 * 600 * 4 // 2 + 2 * (3 + 2) * 4]
