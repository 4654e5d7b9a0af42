"""A step of some of an optimizer's parameters, with the settings of another moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from torch import Tensor, optim
from torch.nn import Parameter
from torch.optim import Optimizer

#: torch's optimizers that step each parameter by its own gradient and state alone: a step of all is a step of
#: some and then of the others, bit for bit.
STEP_EACH_ALONE: frozenset[type[Optimizer]] = frozenset(
    {
        optim.SGD, optim.Adam, optim.AdamW, optim.Adamax, optim.NAdam, optim.RAdam, optim.RMSprop,
        optim.Adagrad, optim.Adadelta, optim.ASGD, optim.Rprop, optim.Adafactor, optim.Muon,
    }
)  # fmt: skip

Group = dict[str, Any]
Key = TypeVar("Key")


def kept(optimizer: Optimizer) -> list[Group]:
    """The settings of each group as they are now: tensors, such as a learning rate, are copies."""
    return [
        {name: value if name == "params" else _copied(value) for name, value in group.items()}
        for group in optimizer.param_groups
    ]


def split(groups: Iterable[Group], key: Callable[[Parameter], Key]) -> dict[Key, list[Group]]:
    """For each value of `key` the groups with the parameters that have it. Cost: one pass over them."""
    found: dict[Key, list[Group]] = {}
    for group in groups:
        by_key: dict[Key, list[Parameter]] = {}
        for param in group["params"]:
            by_key.setdefault(key(param), []).append(param)
        for of, params in by_key.items():
            found.setdefault(of, []).append({**group, "params": params})
    return found


def step(optimizer: Optimizer, groups: list[Group]) -> None:
    """Takes one step of the parameters in `groups`, without the hooks of steps.

    Args:
      optimizer: of a type in `STEP_EACH_ALONE`; its state is read and written.
      groups: with the settings of the step.

    Example:
      >>> import torch
      >>> one, other = (Parameter(torch.zeros(1)) for _ in range(2))
      >>> one.grad = other.grad = torch.ones(1)
      >>> sgd = optim.SGD([one, other], lr=1.0)
      >>> before = kept(sgd)
      >>> sgd.param_groups[0]["lr"] = 5.0
      >>> step(sgd, split(before, lambda param: param is other)[True])
      >>> one.item(), other.item()
      (0.0, -1.0)
    """
    some: Optimizer = object.__new__(type(optimizer))
    some.__dict__ = {**optimizer.__dict__, "param_groups": groups}
    type(optimizer).step.__wrapped__(some)  # type: ignore[attr-defined]


def _copied(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_copied, value))
    return value.detach().clone() if isinstance(value, Tensor) else value
