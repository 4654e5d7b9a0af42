"""`exchange="factors"`: the numbers of `every_step`, whatever a loop and a model do, in fewer bytes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import tweed
from tests.hooks.nets import params
from tests.torch.naive import check, failures_of
from tweed.errors import UsageError
from tweed.hooks.run import Run
from tweed.testbed import run_ranks

STEPS, WIDTH = 3, 64
FACTORS = "factors"
Model = nn.Module


class Net(nn.Module):
    """Layers that are wide enough for factors, and ways through them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.inlet = nn.Linear(WIDTH, WIDTH, bias=False)
        self.left = nn.Linear(WIDTH, WIDTH)
        self.right = nn.Linear(WIDTH, WIDTH)
        self.shared = nn.Linear(WIDTH, WIDTH)
        self.shared.weight = self.left.weight
        self.embedding = nn.Embedding(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.out.weight = self.embedding.weight
        self.conv = nn.Conv1d(1, 2, 3)
        self.idle = nn.Linear(WIDTH, WIDTH)
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)

    def forward(self, x: Tensor, way: str) -> Tensor:
        x = self.inlet(x)
        for part in way.split():
            x = torch.tanh(WAYS[part](self, x) if part in WAYS else getattr(self, part)(x))
        return x.float().square().mean()


def _also_without_grad(model: Net, x: Tensor) -> Tensor:
    y = model.right(x)
    with torch.no_grad():
        model.idle(x)
    return y


#: Parts of a way that are more than a layer.
WAYS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "function": lambda model, x: F.linear(x, model.right.weight),
    "penalty": lambda model, x: x + 1e-6 * model.right.weight.square().sum(),
    "checkpoint": lambda model, x: checkpoint(model.right, x, use_reentrant=False),
    "embedding": lambda model, x: x + model.embedding(torch.arange(len(x))),
    "conv": lambda model, x: model.conv(x[:, None, :]).mean(1)[:, :1] + x,
    "no_grad": _also_without_grad,
    "deep": lambda model, x: model.right(x.view(-1, 1, 1, WIDTH)).view(-1, WIDTH),
}


def _sgd(params: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.5, momentum=0.9)


@dataclass(frozen=True)
class Case:
    """Ways through the net by rank and step, one per backward pass; the first `quiet` are accumulated.

    `fewer`: whether fewer bytes must cross than of sums.
    """

    ways: Callable[[int, int], list[str]]
    quiet: int = 0
    rows: Callable[[int], int] = lambda rank: 4
    optimizer: Callable[[Any], torch.optim.Optimizer] = _sgd
    between: Callable[[Model], None] = lambda model: None
    clip: bool = False
    autocast: bool = False
    fewer: bool = True
    tolerance: float = 1e-6


def every(way: str, **settings: Any) -> Case:
    return Case(lambda rank, step: [way], **settings)


@torch.no_grad()
def _halve(model: Model) -> None:
    for param in model.parameters():
        if param.grad is not None:
            param.grad.mul_(0.5)


def _halve_data(model: Model) -> None:
    for param in model.parameters():
        if param.grad is not None:
            param.grad.data.mul_(0.5)


def _clear(model: Model) -> None:
    for param in model.parameters():
        param.grad = None


CASES = {
    "plain": every("left right"),
    "Adam": every("left right", optimizer=partial(torch.optim.Adam, lr=0.01)),
    "AdamW, clipped": every("left right", optimizer=partial(torch.optim.AdamW, lr=0.01), clip=True),
    "never used": every(""),
    "twice": every("right left right"),
    "shared": every("left shared"),
    "tied to an embedding": every("right embedding out"),
    "read by function": every("left function"),
    "read by function and used": every("right function left"),
    "a penalty": every("right penalty"),
    "a checkpoint": every("left checkpoint"),
    "under no_grad": every("left no_grad"),
    "more dimensions": every("deep left"),
    "a convolution": every("conv right"),
    "a frozen layer": every("left frozen right"),
    "by one rank only": Case(lambda rank, step: ["left right" if rank == 1 else "left"]),
    "by function at one rank only": Case(lambda rank, step: ["left function" if rank == 1 else "left right"]),
    "no backward pass at one rank": Case(lambda rank, step: ["left right"] if rank else []),
    "accumulated": Case(lambda rank, step: ["left", "right left", "right"], quiet=2),
    "accumulated to the step": Case(lambda rank, step: ["left", "right"], quiet=2),
    "accumulated beyond what pays": Case(lambda rank, step: ["right"] * 9, quiet=8, fewer=False),
    "accumulated and changed": Case(lambda rank, step: ["left", "left right"], quiet=1, between=_halve),
    "accumulated and changed unseen": Case(
        lambda rank, step: ["left", "left right"], quiet=1, between=_halve_data
    ),
    "accumulated and cleared": Case(lambda rank, step: ["left", "left right"], quiet=1, between=_clear),
    "changed before the step": Case(lambda rank, step: ["left"], quiet=1, between=_halve, fewer=False),
    "two exchanges": Case(lambda rank, step: ["left", "right left"]),
    "unequal batches": every("left right", rows=lambda rank: 2 + 3 * rank),
    "an empty batch": every("left right", rows=lambda rank: 4 * rank),
    "too many rows": every("left right", rows=lambda rank: 64, fewer=False),
    "too many rows at one rank": every("left right", rows=lambda rank: 4 + 60 * rank, fewer=False),
    "bfloat16 by autocast": every("left right left", autocast=True, tolerance=2e-2),
    "autocast and function": every("left function right", autocast=True, tolerance=2e-2),
}


def train(case: Case, rank: int, strategy: str) -> tuple[list[list[Tensor | None]], list[Tensor], Run]:
    """Gradients of each step, the parameters at the end, and the run."""
    model = Net()
    optimizer = case.optimizer([param for param in model.parameters() if param.requires_grad])
    run = tweed.attach(model, optimizer, strategy)
    found = []
    for step in range(STEPS):
        ways = case.ways(rank, step)
        for number, way in enumerate(ways):
            draw = torch.Generator().manual_seed(100 * step + 10 * number + rank)
            x = torch.randn(case.rows(rank), WIDTH, generator=draw)
            with (
                run.no_sync() if number < case.quiet else nullcontext(),
                torch.autocast("cpu", dtype=torch.bfloat16, enabled=case.autocast),
            ):
                loss = model(x, way) if len(x) else model(x, way).nan_to_num()
            with run.no_sync() if number < case.quiet else nullcontext():
                loss.backward()
            x.zero_()  # a loader uses its memory again
            if number < case.quiet:
                case.between(model)
        if case.clip:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        found.append([None if p.grad is None else p.grad.clone() for p in model.parameters()])
        optimizer.zero_grad()
    run.finish()
    run.detach()
    return found, params(model), run


def compare(rank: int, size: int, case: Case) -> None:
    ours, our_params, run = train(case, rank, FACTORS)
    whole, _, plain = train(case, rank, "every_step")
    for mine, true in zip(ours[0], whole[0], strict=True):
        assert (mine is None) == (true is None)
        if mine is not None and true is not None:
            scale = float(true.abs().max().nan_to_num()) or 1.0
            torch.testing.assert_close(mine, true, rtol=0, atol=case.tolerance * scale, equal_nan=True)
    for mine, true in zip(ours[-1], whole[-1], strict=True):
        assert (mine is None) == (true is None)
        if mine is not None and true is not None:
            torch.testing.assert_close(mine, true, rtol=100 * case.tolerance, atol=1e-3, equal_nan=True)
    if case.fewer:
        assert run.stats.bytes_exchanged < plain.stats.bytes_exchanged
    gathered = [torch.empty_like(torch.cat([p.flatten() for p in our_params])) for _ in range(size)]
    torch.distributed.all_gather(gathered, torch.cat([p.flatten() for p in our_params]))
    assert all(torch.equal(one.nan_to_num(), gathered[0].nan_to_num()) for one in gathered), "models differ"


def compare_all(rank: int, size: int) -> dict[str, str]:
    cases = {name: partial(compare, case=case) for name, case in CASES.items()}
    return failures_of(cases, rank, size)


@pytest.fixture(scope="module", params=[("gloo", 2), ("tweed", 2), ("tweed", 3)], ids=str)
def wrong_by_rank(request: pytest.FixtureRequest) -> list[dict[str, str]]:
    backend, size = request.param
    return run_ranks(compare_all, size, backend=backend)


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_those_of_every_step(wrong_by_rank: list[dict[str, str]], case: str) -> None:
    check(case, wrong_by_rank)


def _model() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def _mean_of(grad: Tensor | None, size: int) -> Tensor:
    assert grad is not None
    total = grad.clone()
    torch.distributed.all_reduce(total)
    return total / size


def _five_times(weight: Tensor) -> None:
    assert weight.grad is not None
    weight.grad.data.mul_(5)


def a_hook_of_the_user_counts(rank: int, size: int) -> None:
    (model, optimizer), x = _model(), torch.randn(3, WIDTH)
    model[0].weight.register_hook(lambda grad: 3 * grad)
    model[2].weight.register_post_accumulate_grad_hook(_five_times)
    model(x).sum().backward()
    expected = [_mean_of(param.grad, size) for param in model.parameters()]
    optimizer.zero_grad()
    tweed.attach(model, optimizer, FACTORS)
    model(x).sum().backward()
    for param, mean in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(param.grad, mean)


def gradients_of_gradients_are_right(rank: int, size: int) -> None:
    (model, optimizer), x = _model(), torch.randn(3, WIDTH, requires_grad=True)

    def penalised() -> None:
        (slope,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        (slope.norm() + model(x).sum()).backward()  # type: ignore[no-untyped-call]

    penalised()
    expected = [_mean_of(param.grad, size) for param in model.parameters()]
    optimizer.zero_grad()
    tweed.attach(model, optimizer, FACTORS)
    penalised()
    for param, mean in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(param.grad, mean)
    optimizer.zero_grad()
    first, *_ = torch.autograd.grad(model(x).sum(), list(model.parameters()))  # which accumulates nothing
    model(x).sum().backward()
    torch.testing.assert_close(model[0].weight.grad, _mean_of(first, size))


def an_input_that_has_changed_is_refused(rank: int, size: int) -> None:
    (model, optimizer), x = _model(), torch.randn(3, WIDTH)
    tweed.attach(model, optimizer, FACTORS)
    loss = model[0](x).sum()
    x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def copies_and_files_are_torchs_own(rank: int, size: int) -> None:
    model, optimizer = _model()
    run = tweed.attach(model, optimizer, FACTORS)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(other[0]) is nn.Linear and type(model[0]) is not nn.Linear
        with torch.no_grad():
            other[0].weight.zero_()
            assert other[0](torch.ones(WIDTH)).equal(other[0].bias)
    run.detach()
    assert type(model[0]) is nn.Linear


def a_scaler_skips_what_is_not_finite(rank: int, size: int) -> None:
    model, optimizer = _model()
    tweed.attach(model, optimizer, FACTORS)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    before = params(model)
    scaler.scale(model(torch.full((2, WIDTH), torch.inf if rank else 1.0)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert all(map(torch.equal, before, params(model))) and scaler.get_scale() == 2.0


def ranks_that_stepped_differently_are_told(rank: int, size: int) -> None:
    model, optimizer = _model()
    tweed.attach(model, optimizer, FACTORS)
    if rank:
        optimizer.step()  # exchanges, as the other rank's backward pass does
    else:
        model(torch.ones(2, WIDTH)).sum().backward()
    with pytest.raises(UsageError, match="other numbers of steps"):
        model(torch.ones(2, WIDTH)).sum().backward()


def a_rank_that_cannot_take_part_tells_all(rank: int, size: int) -> None:
    model, optimizer = _model()
    tweed.attach(model, optimizer, FACTORS)
    if rank == 1:
        model.append(nn.Linear(WIDTH, WIDTH))
    with pytest.raises(UsageError, match=r"'3.weight' has come to the model"):
        model(torch.ones(2, WIDTH)).sum().backward()


def memory_that_the_loop_replaces_is_taken_up(rank: int, size: int) -> None:
    model, optimizer = _model()
    tweed.attach(model, optimizer, FACTORS)
    for number in range(3):
        if number == 1:
            model[0].weight.data = model[0].weight.data.clone()
        kept = model[0].weight.grad
        optimizer.zero_grad()
        model(torch.full((2, WIDTH), 1.0 + rank)).sum().backward()
        if number == 2:
            assert kept is not model[0].weight.grad, "what the program keeps is never written again"


def bytes_are_those_of_the_formula(rank: int, size: int) -> None:
    model = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
    run = tweed.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), FACTORS)
    for rows in (5, 22, 60):
        model.weight.grad = None
        before = run.stats.bytes_exchanged
        model(torch.randn(rows, WIDTH)).sum().backward()
        flags, marks = 8 * 6, 4 * 2
        gathered, summed = 4 * size * rows * 3 * WIDTH // 2, 4 * 2 * WIDTH**2 + marks
        assert run.stats.bytes_exchanged - before == flags + min(gathered, summed)


def other_dtypes_are_exchanged(rank: int, size: int) -> None:
    for dtype, tolerance in ((torch.float64, 1e-14), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)):
        (model, optimizer), x = _model(), torch.randn(3, WIDTH, dtype=dtype)
        model.to(dtype)
        model(x).square().mean().backward()
        expected = [_mean_of(param.grad, size) for param in model.parameters()]
        optimizer.zero_grad()
        tweed.attach(model, optimizer, FACTORS)
        model(x).square().mean().backward()
        for param, mean in zip(model.parameters(), expected, strict=True):
            assert param.grad is not None and param.grad.dtype == dtype
            worst = (param.grad - mean).abs().max() / mean.abs().max()
            assert worst <= tolerance, (dtype, float(worst))


def ranks_may_compute_in_other_dtypes(rank: int, size: int) -> None:
    (model, optimizer), x = _model(), torch.randn(3, WIDTH)

    def backward() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=rank == 1):
            loss = model(x).float().square().mean()
        loss.backward()  # type: ignore[no-untyped-call]

    backward()
    expected = [_mean_of(param.grad, size) for param in model.parameters()]
    optimizer.zero_grad()
    tweed.attach(model, optimizer, FACTORS)
    backward()
    for param, mean in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(param.grad, mean, rtol=0, atol=float(mean.abs().max()) * 1e-6)


def compiled_and_functional_calls_go_as_sums(rank: int, size: int) -> None:
    (model, optimizer), x = _model(), torch.randn(3, WIDTH)
    compiled = torch.compile(model, backend="eager")
    compiled(x).sum().backward()
    expected = [_mean_of(param.grad, size) for param in model.parameters()]
    optimizer.zero_grad()
    tweed.attach(model, optimizer, FACTORS)
    compiled(x).sum().backward()
    for param, mean in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(param.grad, mean)
    params_now = dict(model.named_parameters())
    slopes = torch.func.grad(lambda one: torch.func.functional_call(model, one, (x,)).sum())(params_now)
    assert slopes["0.weight"].shape == model[0].weight.shape
    rows = torch.func.vmap(model)(x[:, None])
    torch.testing.assert_close(rows[:, 0], model(x))


ALSO = [
    other_dtypes_are_exchanged,
    ranks_may_compute_in_other_dtypes,
    compiled_and_functional_calls_go_as_sums,
    a_hook_of_the_user_counts,
    gradients_of_gradients_are_right,
    an_input_that_has_changed_is_refused,
    copies_and_files_are_torchs_own,
    a_scaler_skips_what_is_not_finite,
    ranks_that_stepped_differently_are_told,
    a_rank_that_cannot_take_part_tells_all,
    memory_that_the_loop_replaces_is_taken_up,
    bytes_are_those_of_the_formula,
]


@pytest.mark.parametrize("what", ALSO)
def test_what_else_a_loop_does(what: Callable[[int, int], None]) -> None:
    run_ranks(what, 2, backend="tweed")
