"""Factors of linear layers: the numbers of every_step, whatever becomes of a weight, and fewer bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

import tweed
from tweed.errors import StrategyError, UsageError
from tweed.exchange.factors import pays
from tweed.recipes import every_step, factors
from tweed.strategy import Strategy
from tweed.testbed import run_ranks

WIDE = 32


class Case(NamedTuple):
    """A model, and what becomes of it in a step: the loss of rank's samples in so many passes."""

    make: Callable[[], nn.Module]
    loss: Callable[[nn.Module, Tensor, int], Tensor] = lambda model, x, rank: model(x).square().mean()
    ranks: int = 2
    rows: Callable[[int], int] = lambda rank: 4
    passes: int = 1
    tolerance: float = 1e-6


def mlp() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(WIDE, WIDE), nn.Tanh(), nn.Linear(WIDE, WIDE), nn.ReLU(inplace=True), nn.Linear(WIDE, 1)
    )


def tied() -> nn.Sequential:
    first, second = nn.Linear(WIDE, WIDE), nn.Linear(WIDE, WIDE)
    second.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second)


def unused_on_rank_1(model: nn.Module, x: Tensor, rank: int) -> Tensor:
    assert isinstance(model, nn.Sequential)
    hidden = model[0](x)
    return (model[2](torch.tanh(hidden)) if rank == 0 else hidden).square().mean()


def outside_too(model: nn.Module, x: Tensor, rank: int) -> Tensor:
    assert isinstance(model, nn.Sequential)
    return model(x).square().mean() + functional.linear(x, model[0].weight).sin().mean()


def twice(model: nn.Module, x: Tensor, rank: int) -> Tensor:
    return model(model(x)).square().mean()


def halved(model: nn.Module, x: Tensor, rank: int) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return model(x).float().square().mean()


def long(model: nn.Module, x: Tensor, rank: int) -> Tensor:
    return model(x.view(2, -1, WIDE)).square().mean()


def checkpointed(model: nn.Module, x: Tensor, rank: int) -> Tensor:
    from torch.utils.checkpoint import checkpoint

    out: Tensor = checkpoint(model, x, use_reentrant=False)
    return out.square().mean()


def convolved() -> nn.Sequential:
    return nn.Sequential(
        nn.Unflatten(1, (1, WIDE)), nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(60, WIDE), nn.Linear(WIDE, 2)
    )


CASES = {
    "a perceptron": Case(mlp),
    "three ranks": Case(mlp, ranks=3),
    "unequal batches": Case(mlp, rows=lambda rank: 2 + 3 * rank),
    "many rows": Case(mlp, rows=lambda rank: 40),
    "many rows on one rank": Case(mlp, rows=lambda rank: 40 if rank else 2),
    "tied weights": Case(tied),
    "a layer used twice": Case(lambda: nn.Linear(WIDE, WIDE), twice),
    "a layer that one rank does not use": Case(mlp, unused_on_rank_1),
    "a weight used outside its module": Case(mlp, outside_too),
    "several dimensions": Case(mlp, long),
    "passes that add up": Case(mlp, passes=3),
    "passes that add up to many rows": Case(mlp, rows=lambda rank: 15, passes=3),
    "checkpoints": Case(mlp, checkpointed),
    "convolutions": Case(convolved),
    "16 bits": Case(mlp, halved, tolerance=2e-3),
    "a weight alone": Case(lambda: nn.Linear(WIDE, WIDE, bias=False)),
}


def trained(rank: int, size: int, name: str, strategy: Strategy) -> tuple[list[Tensor], int]:
    """The model after three steps, and bytes that were exchanged."""
    case = CASES[name]
    torch.manual_seed(0)
    model = case.make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    run = tweed.attach(model, optimizer, strategy)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(3):
        optimizer.zero_grad()
        for number in range(case.passes):
            x = torch.randn(case.rows(rank), WIDE, generator=generator)
            if number < case.passes - 1:
                with run.no_sync():
                    case.loss(model, x, rank).backward()  # type: ignore[no-untyped-call]
            else:
                case.loss(model, x, rank).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    run.detach()
    return [param.detach().clone() for param in model.parameters()], run.stats.bytes_exchanged


def both(rank: int, size: int, name: str) -> tuple[Any, Any]:
    return trained(rank, size, name, every_step()), trained(rank, size, name, factors())


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_are_those_of_every_step(name: str) -> None:
    found = run_ranks(both, CASES[name].ranks, name, backend="tweed")
    for (dense, _), (ours, _) in found:
        for one, other in zip(dense, ours, strict=True):
            torch.testing.assert_close(other, one, atol=CASES[name].tolerance, rtol=0)
    for _, (ours, _) in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(ours, found[0][1][0], strict=True))


def test_few_rows_are_fewer_bytes_and_many_are_none_more() -> None:
    for name, share in (("a perceptron", 0.5), ("a weight alone", 0.5), ("many rows", 1.05)):
        ((_, dense), (_, ours)), *_ = run_ranks(both, 2, name, backend="tweed")
        assert ours <= share * dense, name


def wrong(rank: int, size: int) -> list[str]:
    """What is said where one rank skips a step, and where its model is another one by then."""
    said = []
    for change in (_skip, _add):
        torch.manual_seed(0)
        model = nn.Linear(WIDE, WIDE, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run = tweed.attach(model, optimizer, factors())
        try:
            for step in range(2):
                loss = model(torch.ones(2, WIDE)).square().mean()
                loss.backward()
                if rank == 1 and step == 0:
                    change(model, optimizer)
                else:
                    optimizer.step()
                optimizer.zero_grad()
        except UsageError as error:
            said.append(str(error))
        run.detach()
    return said


def _skip(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Takes no step."""


def _add(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.step()
    model.added = nn.Parameter(torch.zeros(1))


def test_ranks_that_differ_are_named_at_all() -> None:
    first, second = run_ranks(wrong, 2, backend="tweed")
    assert "other numbers of steps" in first[0] and "other numbers of steps" in second[0]
    assert "added" in second[1] and "cannot take part" in first[1]


@given(st.integers(1, 16), st.integers(1, 200), st.integers(1, 300), st.integers(1, 300))
def test_the_switch_is_where_values_received_are_as_many(
    ranks: int, rows: int, inputs: int, outputs: int
) -> None:
    gathered = (ranks - 1) * rows * (inputs + outputs)
    reduced = 2 * (ranks - 1) / ranks * inputs * outputs
    assert ranks == 1 or pays(ranks, rows, inputs, outputs) == (gathered < reduced * (1 - 1e-12))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cadence": tweed.cadence.LocalSteps(4)}, "product of few factors"),
        ({"compress": tweed.compress.Quantise(8)}, "factors are exact"),
        ({"collective": tweed.collective.Server(0)}, "server's reply"),
        ({"transport": "ltp"}, "whole row"),
        ({"aggregate": tweed.aggregate.Krum(0.3)}, "whole gradients"),
    ],
)
def test_what_does_not_go_with_factors_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(StrategyError, match=f'does not go with exchange="factors".*{words}'):
        Strategy("factors", **settings)
