"""Hooks on linear layers, which hold their inputs and the gradients of their outputs until the exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tweed.exchange.factors import Factors


class LinearFactors:
    """Factors of the weights of a model's linear layers, as backward passes give them.

    A weight that several layers have joins their factors, and so do passes that add to a gradient. Of a
    weight that gets more rows than could ever pay nothing is held any more, until the next exchange.

    Args:
      model: whose `nn.Linear` modules are followed, those that it has now.
      trained: by name, what is exchanged.

    Cost: a hook per layer and pass; memory for inputs and errors of a step.
    """

    def __init__(self, model: nn.Module, trained: Mapping[str, Tensor]) -> None:
        by_weight = {id(param): name for name, param in trained.items() if param.dim() == 2}
        self._held: dict[str, list[Factors] | None] = {}
        self._hooks: list[Any] = []
        for module in model.modules():
            name = by_weight.get(id(module.weight)) if isinstance(module, nn.Linear) else None
            if name is not None:
                self._held.setdefault(name, [])
                self._hooks.append(module.register_forward_hook(partial(self._follow, name)))

    @property
    def names(self) -> Sequence[str]:
        """Weights of linear layers."""
        return [*self._held]

    def _follow(self, name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if inputs and isinstance(output, Tensor) and output.requires_grad and torch.is_grad_enabled():
            output.register_hook(partial(self._hold, name, inputs[0].detach()))  # type: ignore[no-untyped-call]

    def _hold(self, name: str, inputs: Tensor, errors: Tensor) -> None:
        """The backward pass has come to a layer."""
        held = self._held[name]
        if held is None:
            return
        held.append(
            Factors(inputs.reshape(-1, inputs.shape[-1]), errors.detach().reshape(-1, errors.shape[-1]))
        )
        lengths = inputs.shape[-1], errors.shape[-1]
        if sum(len(one.inputs) for one in held) * sum(lengths) >= 2 * lengths[0] * lengths[1]:
            self._held[name] = None

    def take(self, name: str) -> Factors | None:
        """Factors of a weight, all rows side by side; None: it has none, or too many. They are forgotten."""
        held, self._held[name] = self._held[name], []
        if not held:
            return None
        return Factors(*(torch.cat(side) if len(held) > 1 else side[0] for side in zip(*held, strict=True)))

    def close(self) -> None:
        """Follows the layers no more."""
        for hook in self._hooks:
            hook.remove()
        self._held = dict.fromkeys(self._held)
