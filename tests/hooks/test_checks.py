"""What `attach` refuses, and in which words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import tweed
from tweed.errors import ShapeMismatch, StrategyError, UsageError
from tweed.exchange.terms import terms
from tweed.hooks import checks
from tweed.recipes import every_step
from tweed.strategy import Strategy
from tweed.testbed import run_ranks


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("strategy", "error", "words"),
    [("every_step", UsageError, r'init_process_group\("tweed"\)'), ("magic", StrategyError, "Known are")],
)
def test_what_is_missing_is_said_before_anything_else(
    strategy: str, error: type[Exception], words: str
) -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(error, match=words):
        tweed.attach(model, sgd(model), strategy)


MODELS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "no parameters": (nn.ReLU, "no parameter that requires a gradient"),
    "frozen": (lambda: nn.Linear(2, 2).requires_grad_(False), "no parameter that requires a gradient"),
    "lazy": (lambda: nn.Sequential(nn.Linear(2, 2), nn.LazyLinear(2)), "'1.weight' has no shape yet"),
    "meta": (lambda: nn.Linear(2, 2, device="meta"), "'weight' is on the meta device"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_cannot_be_trained_is_refused(name: str) -> None:
    make, words = MODELS[name]
    with pytest.raises(UsageError, match=words):
        checks.check_model(make(), [sgd(nn.Linear(2, 2))])


def test_swapped_arguments_are_named() -> None:
    model: Any = nn.Linear(2, 2)
    optimizer: Any = sgd(model)
    with pytest.raises(UsageError, match=r"attach\(SGD, Linear\): attach takes a torch.nn.Module and then"):
        checks.check_model(optimizer, model)
    with pytest.raises(UsageError, match=r"attach\(Linear, SGD, Linear\): .* or a list of them"):
        checks.check_model(model, [optimizer, model])
    with pytest.raises(UsageError, match=r"attach\(Linear, list\)"):
        checks.check_model(model, [])


def test_a_strategy_that_was_not_called_is_named() -> None:
    model, strategy = nn.Linear(2, 2), tweed.local_steps
    with pytest.raises(StrategyError, match=r"not <function local_steps at .*: write local_steps\(\)"):
        tweed.attach(model, sgd(model), strategy)  # type: ignore[arg-type]


def test_an_optimizer_of_another_model_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"parameter 0 in group 0 .* shape \[3, 3\], is not a parameter of the model"
    ):
        checks.check_model(nn.Linear(2, 2), [sgd(nn.Linear(3, 3))])


def test_a_stage_that_is_not_driven_is_refused_by_name() -> None:
    with pytest.raises(StrategyError, match="order='something'"):
        Strategy(order="something")


def test_terms_say_all_that_ranks_must_agree_on() -> None:
    model = nn.BatchNorm1d(2)
    expected = [
        f"strategy {every_step()!r}", "bucket_bytes 7", "weight float32[2] requires_grad=True",
        "bias float32[2] requires_grad=True", "running_mean float32[2] requires_grad=False",
        "running_var float32[2] requires_grad=False", "num_batches_tracked int64[] requires_grad=False",
    ]  # fmt: skip
    assert terms(model, every_step(), {"bucket_bytes": 7}) == expected


@pytest.mark.parametrize(
    ("by_rank", "words"),
    [
        ([["a", "b"], ["a", "c"]], "rank 0 has b; rank 1 has c"),
        ([["a"], ["a", "b"], ["a"]], "rank 0 has nothing; rank 1 has b; rank 2 has nothing"),
    ],
)
def test_a_disagreement_names_each_ranks_value(by_rank: list[list[str]], words: str) -> None:
    checks.check_agreement([by_rank[0]] * 2)
    with pytest.raises(ShapeMismatch, match=words):
        checks.check_agreement(by_rank)


def refuse_in_a_group(rank: int, size: int) -> None:
    model = nn.Linear(2, 2)
    wrapped = DistributedDataParallel(model)
    with pytest.raises(UsageError, match=r"would be exchanged twice.*Accelerate.*Lightning.*Transformers"):
        tweed.attach(wrapped, sgd(model))
    with tweed.attach(model, sgd(model)):
        with torch.no_grad():
            wrapped(torch.ones(1, 2))  # exchanges nothing
        with pytest.raises(UsageError, match="the attached model runs within DistributedDataParallel"):
            wrapped(torch.ones(1, 2))
        model(torch.ones(1, 2))
    others = dist.new_group([1])
    if rank == 0:
        with pytest.raises(UsageError, match="not a member"):
            tweed.attach(model, sgd(model), group=others)
    run = tweed.attach(model, sgd(model))
    with pytest.raises(UsageError, match="attached already"):
        tweed.attach(model, sgd(model))
    run.detach()


def refuse_spread_parameters(rank: int, size: int) -> None:
    import torch.distributed.tensor as dtensor  # slow, and every rank of this file would pay for it

    mesh = dist.init_device_mesh("cpu", (size,))
    model = nn.Linear(2, 2)
    model.weight = nn.Parameter(dtensor.distribute_tensor(model.weight.detach(), mesh, [dtensor.Shard(0)]))
    with pytest.raises(UsageError, match="'weight' is spread over ranks"):
        tweed.attach(model, sgd(model))


def disagree(rank: int, size: int) -> None:
    model = nn.Linear(2, 2 + rank)
    with pytest.raises(
        ShapeMismatch, match=r"rank 0 has weight float32\[2, 2\].*; rank 1 has weight float32\[3, 2\]"
    ):
        tweed.attach(model, sgd(model))
    model = nn.Linear(2, 2)
    with pytest.raises(ShapeMismatch, match=r"every=4.*; rank 1 has .*every=8"):
        tweed.attach(model, sgd(model), f"local_steps({[4, 8][rank]})")
    tweed.attach(model, sgd(model))


def refuse_during_training(rank: int, size: int) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].requires_grad_(False)
    optimizer = sgd(model)
    tweed.attach(model, optimizer)
    model[1].requires_grad_(True)
    with pytest.raises(UsageError, match=r"parameter 2 in group 0 .* began to require a gradient"):
        optimizer.step()

    table = nn.Embedding(4, 2, sparse=True)
    tweed.attach(table, sgd(table))
    with pytest.raises(UsageError, match="the gradient of 'weight' is sparse"):
        table(torch.tensor([1])).sum().backward()

    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tweed.attach(model, sgd(model))
    x = model[0](torch.ones(1, 2))
    for _ in range(2):
        x = checkpoint(model[1], x, use_reentrant=True)
    with pytest.raises(UsageError, match=r"'1.(weight|bias)' got a second gradient .* use_reentrant=False"):
        x.sum().backward()


@pytest.mark.parametrize(
    "refusal", [refuse_in_a_group, refuse_spread_parameters, disagree, refuse_during_training]
)
def test_ranks_refuse_alike(refusal: Callable[[int, int], None]) -> None:
    run_ranks(refusal, 2, backend="gloo")
