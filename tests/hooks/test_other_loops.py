"""Optimizers that step where they should not, new parameters, and states of another number of ranks."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tweed
from tests.hooks.nets import batch, equal, on_each_backend, params
from tweed.errors import UsageError
from tweed.testbed import run_ranks


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def loss(model: nn.Module, rank: int, number: int) -> Tensor:
    return model(batch(rank, number).double()).square().mean()


def in_backward(rank: int, size: int, strategy: str, attached_first: bool) -> list[Tensor] | str:
    """Each parameter has an optimizer, which a hook steps as soon as the gradient is there."""
    model = net()
    optimizers = {param: torch.optim.SGD([param], lr=0.1) for param in model.parameters()}

    def step(param: Tensor) -> None:
        optimizers[param].step()
        optimizers[param].zero_grad()

    run = tweed.attach(model, list(optimizers.values()), strategy) if attached_first else None
    for param in model.parameters():
        param.register_post_accumulate_grad_hook(step)
    run = run or tweed.attach(model, list(optimizers.values()), strategy)
    try:
        for number in range(4):
            loss(model, rank, number).backward()
        run.finish()
        return params(model)
    except UsageError as error:
        return str(error)
    finally:
        run.detach()


def local_steps(rank: int, size: int) -> list[Tensor]:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tweed.attach(model, optimizer, "local_steps:2"):
        for number in range(4):
            optimizer.zero_grad()
            loss(model, rank, number).backward()
            optimizer.step()
    return params(model)


@pytest.mark.parametrize("attached_first", [True, False])
def test_a_step_within_a_backward_pass_is_refused_where_gradients_are_exchanged(attached_first: bool) -> None:
    for heard in run_ranks(in_backward, 2, "every_step", attached_first, backend="gloo"):
        assert "an optimizer steps within a backward pass" in heard
    right = run_ranks(local_steps, 2, backend="gloo")
    found = run_ranks(in_backward, 2, "local_steps:2", attached_first, backend="gloo")
    assert all(equal(one, other) for one, other in zip(found, right, strict=True))


def adapts(rank: int, size: int, how: str) -> str:
    """An adapter, or parameters of a checkpoint, come after attach, with an optimizer of their own."""
    model = net()
    run = tweed.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), "every_step")
    if how == "adapter":
        model.requires_grad_(False).append(nn.Linear(2, 1).double())
        own = torch.optim.SGD(model[3].parameters(), lr=0.1)
    elif how == "assign":
        model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
        own = torch.optim.SGD(model.parameters(), lr=0.1)
    else:
        own = torch.optim.SGD(model.parameters(), lr=0.1)
    before = params(model)
    try:
        for param in model.parameters():
            param.grad = torch.ones_like(param)
        own.step()
    except UsageError as error:
        assert equal(before, params(model)), "nothing was changed"
        return str(error)
    finally:
        run.detach()
    return ""


@pytest.mark.parametrize("how", ["adapter", "assign", "made anew"])
def test_a_step_of_another_optimizer_is_refused(how: str) -> None:
    for heard in run_ranks(adapts, 2, how, backend="gloo"):
        assert "of the attached model, and attach was given another optimizer" in heard


def takes_up(rank: int, size: int, strategy: str, closure: bool, assigns: bool) -> list[Tensor]:
    """The optimizer is given what `load_state_dict(assign=True)` brings."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tweed.attach(model, optimizer, strategy):
        for number in range(5):
            if number == 2 and assigns:
                model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
                optimizer.param_groups[0]["params"] = list(model.parameters())

            def compute() -> Tensor:
                optimizer.zero_grad()
                value = loss(model, rank, number)  # noqa: B023 - called before the next one
                value.backward()
                return value

            if closure:
                optimizer.step(compute)
            else:
                compute()
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
    return params(model)


@pytest.mark.parametrize("closure", [True, False])
@pytest.mark.parametrize("strategy", ["every_step", "urgent", "top_k:0.5", "local_steps:2", "cser"])
def test_parameters_of_the_same_form_are_taken_up(strategy: str, closure: bool) -> None:
    found = run_ranks(takes_up, 2, strategy, closure, True, backend="gloo")
    right = run_ranks(takes_up, 2, strategy, closure, False, backend="gloo")
    assert all(equal(one, other) for one, other in zip(found, right, strict=True))


def trained(model: nn.Module, rank: int, strategy: str, steps: range, state: Any, ends: bool) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = tweed.attach(model, optimizer, strategy)
    try:
        if state is not None:
            run.load_state_dict(state)
        for number in steps:
            loss(model, rank, number).backward()
            optimizer.step()
            optimizer.zero_grad()
        if ends:
            run.finish()
        return run.state_dict()
    finally:
        run.detach()


def stores(rank: int, size: int, strategy: str, ends: bool) -> tuple[Any, Any]:
    model = net()
    state = trained(model, rank, strategy, range(3), None, ends)
    return state, model.state_dict()


def resumes(rank: int, size: int, strategy: str, stored: list[tuple[Any, Any]]) -> list[Tensor] | str:
    state, values = stored[min(rank, len(stored) - 1)]
    model = net()
    model.load_state_dict(values)
    try:
        trained(model, rank, strategy, range(3, 6), {**state, "plan": None}, True)
    except UsageError as error:
        return str(error)
    return params(model)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    ("strategy", "ends", "words"),
    [
        ("every_step", False, ""),
        ("urgent", False, ""),
        ("local_steps:2", True, ""),
        ("diloco:2", True, ""),
        ("local_steps:2", False, "each rank has a model of its own"),
        ("top_k:0.1", True, "holds what that rank had yet to send"),
        ("local_top_k:2", True, "holds what that rank had yet to send"),
    ],
)
def test_another_number_of_ranks_goes_on_or_is_told_why_not(
    strategy: str, ends: bool, words: str, size: int
) -> None:
    stored = run_ranks(stores, 3, strategy, ends, backend="gloo")
    found = run_ranks(resumes, size, strategy, stored, backend="gloo")
    if words:
        assert all(words in one and f"of 3 ranks, and this one has {size}" in one for one in found)
    else:
        assert all(equal(one, found[0]) for one in found)


def copied(rank: int, size: int) -> list[float]:
    """A model that is attached is stored whole, and copied; the copy trains alone."""
    model = net()
    run = tweed.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), "top_k:0.5")
    found = []
    for _ in range(2):
        stored = io.BytesIO()
        torch.save(model, stored)
        stored.seek(0)
        for other in (copy.deepcopy(model), torch.load(stored, weights_only=False)):
            loss(other, 5, rank).backward()  # nothing is exchanged of it
            found.append(float(other[0].weight.grad.sum()))
        loss(model, 0, 0).backward()
    run.detach()
    return found


def test_a_model_that_is_attached_can_be_stored_and_copied() -> None:
    first, other = run_ranks(copied, 2, backend="gloo")
    assert len({*first}) == len({*other}) == 1 and first != other


@on_each_backend
def test_what_is_finished_makes_a_model_one_that_a_rank_has_changed(backend: str) -> None:
    first, other = run_ranks(changes_by_hand, 2, backend=backend)
    assert equal(first, other)


def changes_by_hand(rank: int, size: int) -> list[Tensor]:
    model = net()
    with tweed.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), "every_step"), torch.no_grad():
        model[0].weight.add_(rank)
    return params(model)
