"""Hooks on optimizers, where several runs of one process come and go. Pure."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tweed.errors import UsageError
from tweed.hooks.optimizers import Optimizers
from tweed.hooks.trained import Trained


def watched() -> tuple[nn.Linear, torch.optim.Optimizer, Optimizers]:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    made = Optimizers([optimizer], Trained(model))
    made.watch(lambda has_closure: None, lambda: None)
    return model, optimizer, made


def test_a_model_may_be_attached_while_torch_goes_through_the_hooks_of_another_ones_step() -> None:
    _, optimizer, first = watched()
    later: list[Optimizers] = []

    def attaches(stepped: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        later.append(watched()[2])  # as another thread may, at any moment

    hooks = [register_optimizer_step_pre_hook(one) for one in (attaches, lambda *args: None)]
    try:
        optimizer.step()
    finally:
        for hook in hooks:
            hook.remove()
    for one in [first, *later]:
        one.forget()
    assert len(later) == 1


def test_each_run_refuses_other_optimizers_until_it_ends() -> None:
    (one, _, first), (two, _, second) = watched(), watched()
    for model, run in ((one, first), (two, second)):
        other = torch.optim.SGD(model.parameters(), lr=0.1)
        with pytest.raises(UsageError, match="would change 'weight' of the attached model"):
            other.step()
        run.forget()
        other.step()
