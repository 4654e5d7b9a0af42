"""A model's values side by side."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tweed.compress import Spec
from tweed.errors import UsageError


class Flat:
    """Lays a model's parameters into one buffer and their gradients into another, tensor after tensor.

    The model's parameters and their `grad` become views, in the memory format that they had. A gradient is
    to be zeroed by `grads.zero_()` and never set to None.

    Attributes:
      spec: the tensors in the buffer.
      param: one parameter with all values, and all gradients as its `grad`: for an optimizer.

    Raises: UsageError if a parameter is not float32.
    """

    def __init__(self, model: nn.Module) -> None:
        params = [param for param in model.parameters() if param.requires_grad]
        if any(param.dtype != torch.float32 for param in params):
            raise UsageError("virtual workers train float32 models only")
        self.spec = Spec(tuple(tuple(param.shape) for param in params))
        self.param = nn.Parameter(torch.empty(self.spec.numel, device=params[0].device))
        self.param.grad = torch.zeros_like(self.param)
        first = 0
        for param in params:
            values, grads = (_view(buffer, param, first) for buffer in (self.values, self.grads))
            values.copy_(param.data)
            param.data, param.grad = values, grads
            first += param.numel()

    @property
    def values(self) -> Tensor:
        """The values of all parameters, `[numel]`."""
        return self.param.data

    @property
    def grads(self) -> Tensor:
        """The gradients of all parameters, `[numel]`."""
        assert self.param.grad is not None  # set above
        return self.param.grad


def _view(buffer: Tensor, param: Tensor, first: int) -> Tensor:
    like = torch.empty_like(param, device="meta")  # dense, in the memory format of `param`
    return buffer.as_strided(like.size(), like.stride(), first)
