"""Local steps that are pulled towards where the round began, so that ranks with other data stay near."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from tweed.exchange.checkpoint import filled, plain


class Proximal:
    """Adds `weight * (x - x_0)` to gradients at `x`: those of the loss plus `weight / 2 * |x - x_0|^2`, where
    `x_0` is where the parameters stood at the first step after an exchange.

    Args:
      params: those that are trained, as they are at each step.
      weight: see above.

    Cost: memory for one more model, and two passes over it per step.
    Source: Li et al., "Federated optimization in heterogeneous networks", 2020 (FedProx).
    """

    def __init__(self, params: Collection[Tensor], weight: float) -> None:
        self._params, self._weight = params, weight
        self._anchor: list[Tensor] = []

    @torch.no_grad()
    def pull(self) -> None:
        """Before a step: changes the gradients that there are."""
        if not self._anchor:
            self._anchor = [param.detach().clone() for param in self._params]
            return
        for param, start in zip(self._params, self._anchor, strict=True):
            if param.grad is not None:
                param.grad = param.grad.to_dense()
                param.grad.add_(param - start, alpha=self._weight)

    def exchanged(self) -> None:
        """Begins a round, after an exchange."""
        self._anchor = []

    def state(self) -> dict[str, Any]:
        """Where the round began, for a checkpoint."""
        return {"anchor": plain(self._anchor)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state`."""
        like = [torch.empty_like(param) for param in self._params] if state["anchor"] else []
        self._anchor = filled(like, state["anchor"])
