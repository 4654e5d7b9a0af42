"""The parameters that are trained, as one vector of float32."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from tweed.compress import Spec


class Parameters:
    """The parameters that are trained, as they are at each call, as one vector of float32."""

    def __init__(self, params: Collection[Tensor]) -> None:
        self.params = params
        self.spec = Spec(tuple(tuple(param.shape) for param in params))

    @torch.no_grad()
    def values(self) -> Tensor:
        """A copy of all values: `[numel]`."""
        return torch.cat([param.detach().float().cpu().flatten() for param in self.params])

    def gradients(self) -> Tensor:
        """A copy: `[numel]`, zero where a parameter has none."""
        grads = [torch.zeros_like(p) if p.grad is None else p.grad.detach() for p in self.params]
        return torch.cat([grad.float().cpu().flatten() for grad in grads])

    @torch.no_grad()
    def set(self, values: Tensor) -> None:
        """The model has these values now."""
        for param, piece in zip(self.params, self.pieces(values), strict=True):
            param.copy_(piece)

    def pieces(self, values: Tensor) -> list[Tensor]:
        """Views of such a vector, one in the shape of each parameter."""
        split = torch.split(values, list(self.spec.sizes))
        return [piece.view(param.shape) for param, piece in zip(self.params, split, strict=True)]

    def set_gradients(self, values: Tensor) -> None:
        """Gradients are these, for an optimizer to step by."""
        for param, piece in zip(self.params, self.pieces(values), strict=True):
            param.grad = piece.to(param)
