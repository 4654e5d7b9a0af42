"""Programs of tests/programs, on another device than the host."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tests.programs.table import rows

#: Left out, with the reason.
LEFT_OUT = {
    "ddp.compiled": "it compiles longer than all others run",
    "operations.threads": "threads that it starts have the host as their default device",
    "operations.two_threads_one_group": "as above",
}
STEPS = 2


def named(*sections: str) -> tuple[str, ...]:
    """Programs of these sections for two ranks that need no launcher."""
    fitting = [row.name for row in rows() if row.ranks == 2 and not row.agents and row.section in sections]
    return tuple(name for name in fitting if name not in LEFT_OUT)


def first_steps(name: str, rank: int, size: int, device: torch.device) -> list[Any]:
    """What the first steps give. Tensors for which the program names no device are on `device`."""
    with device, DrawnOnHost():
        torch.manual_seed(0)
        step = importlib.import_module(f"tests.programs.{name}").program(rank, size)
        return [step() for _ in range(STEPS)]


class DrawnOnHost(TorchFunctionMode):
    """Random values are drawn on the host, so that they are the same on every device."""

    new = (torch.rand, torch.randn, torch.randint, torch.randperm)
    in_place = (Tensor.uniform_, Tensor.normal_, Tensor.bernoulli_, Tensor.random_)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if func in self.new:
            device = given.get("device") or torch.get_default_device()
            return func(*args, **given | {"device": "cpu"}).to(device)
        if func in self.in_place:
            tensor, *others = args
            return tensor.copy_(func(torch.empty_like(tensor, device="cpu"), *others, **given))
        return func(*args, **given)
