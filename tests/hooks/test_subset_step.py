"""Steps of some parameters and then of the others are steps of all, bit for bit. Pure."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn, optim
from torch.optim import Optimizer

from tweed.hooks.subset_step import STEP_EACH_ALONE, kept, split, step

#: Settings beside which each optimizer is tried as it is.
SETTINGS: dict[type[Optimizer], list[dict[str, Any]]] = {
    optim.SGD: [
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"weight_decay": 0.1, "momentum": 0.5},
    ],
    optim.Adam: [{"amsgrad": True}, {"weight_decay": 0.1}, {"lr": torch.tensor(0.05)}],
    optim.AdamW: [{"amsgrad": True, "maximize": True}],
    optim.RMSprop: [{"momentum": 0.9, "centered": True}],
    optim.Adagrad: [{"lr_decay": 0.1}],
    optim.NAdam: [{"decoupled_weight_decay": True, "weight_decay": 0.1}],
}
PATHS: list[dict[str, Any]] = [{"foreach": False}, {"foreach": True}, {"fused": True}]


def cases() -> list[tuple[type[Optimizer], dict[str, Any]]]:
    found = []
    for kind in sorted(STEP_EACH_ALONE, key=lambda one: one.__name__):
        names = kind.__init__.__code__.co_varnames
        for settings in ({}, *SETTINGS.get(kind, [])):
            paths = [path for path in PATHS if {*path} <= {*names}] or [{}]
            found += [(kind, {**settings, **path}) for path in paths]
    return [one for one in found if not (isinstance(one[1].get("lr"), Tensor) and one[1].get("foreach"))]


def model() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(5)))


def train(kind: type[Optimizer], settings: dict[str, Any], places: list[int] | None) -> list[Tensor]:
    """Parameters and states after four steps, of all at once, or place by place in this order."""
    net, rng = model(), torch.Generator().manual_seed(7)
    params = [*net.parameters()]
    groups = [{"params": params[:2]}, {"params": params[2:], "weight_decay": 0.01}]
    made: Any = kind
    optimizer = made(groups, **{"lr": 0.05, **settings})
    for number in range(4):
        for place, param in enumerate(params):
            param.grad = torch.randn(param.shape, generator=rng)
            if (place, number) == (1, 2):
                param.grad = None
        if places is None:
            optimizer.step()
            optimizer.param_groups[0]["lr"] *= 0.9
        else:
            settings_now = kept(optimizer)
            optimizer.param_groups[0]["lr"] *= 0.9  # later, as by a scheduler
            where = dict(zip(params, places, strict=True))
            parts = split(settings_now, where.__getitem__)
            for place in sorted(parts):
                step(optimizer, parts[place])
    state = optimizer.state_dict()["state"]
    values = [
        value for index in sorted(state) for value in state[index].values() if isinstance(value, Tensor)
    ]
    return [*params, *values]


@pytest.mark.parametrize(("kind", "settings"), cases(), ids=str)
def test_a_step_in_parts_is_a_step(kind: type[Optimizer], settings: dict[str, Any]) -> None:
    whole = train(kind, copy.deepcopy(settings), None)
    parts = train(kind, copy.deepcopy(settings), [1, 0, 2, 0, 1])
    assert len(whole) == len(parts) and all(map(torch.equal, whole, parts))


@given(places=st.lists(st.integers(0, 3), min_size=5, max_size=5))
def test_parts_may_be_any(places: list[int]) -> None:
    settings = {"weight_decay": 0.1, "foreach": False}
    assert all(map(torch.equal, train(optim.AdamW, settings, None), train(optim.AdamW, settings, places)))


def test_all_of_torchs_optimizers_are_listed_or_known_not_to_be_cut() -> None:
    """LBFGS takes one direction for all, and SparseAdam's gradients are sparse."""
    public = {
        one
        for one in vars(optim).values()
        if isinstance(one, type) and issubclass(one, Optimizer) and one is not Optimizer
    }
    assert public - STEP_EACH_ALONE == {optim.LBFGS, optim.SparseAdam}


@given(keys=st.lists(st.integers(0, 2), min_size=6, max_size=6), cut=st.integers(1, 5))
def test_groups_that_are_split_have_each_parameter_once_with_its_settings(keys: list[int], cut: int) -> None:
    params = [nn.Parameter(torch.zeros(1)) for _ in keys]
    groups = [{"params": params[:cut], "lr": 1.0}, {"params": params[cut:], "lr": 2.0}]
    of = dict(zip(params, keys, strict=True))
    found = split(groups, of.__getitem__)
    assert set(found) == set(keys)
    for key, parts in found.items():
        mine = [(id(param), group["lr"]) for group in parts for param in group["params"]]
        rates = [1.0] * cut + [2.0] * (len(params) - cut)
        assert mine == [(id(p), lr) for p, lr in zip(params, rates, strict=True) if of[p] == key]


def test_settings_that_are_tensors_are_kept_as_they_were() -> None:
    param = nn.Parameter(torch.zeros(1))
    adam = optim.Adam(
        [param], lr=torch.tensor(0.5), betas=(torch.tensor(0.9), torch.tensor(0.99)), foreach=False
    )
    [group] = kept(adam)
    adam.param_groups[0]["lr"].fill_(7)
    adam.param_groups[0]["betas"][0].fill_(7)
    assert group["lr"].item() == 0.5 and group["betas"][0].item() == pytest.approx(0.9)
    assert group["params"][0] is param


def test_hooks_of_steps_are_not_run() -> None:
    param = nn.Parameter(torch.zeros(1))
    param.grad = torch.ones(1)
    sgd = optim.SGD([param], lr=1.0)
    sgd.register_step_pre_hook(lambda *args: pytest.fail("a hook ran"))
    step(sgd, kept(sgd))
    assert param.item() == -1
