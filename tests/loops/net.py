"""What programs train: a small model with every kind of tensor that a model may hold."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

INPUTS, HIDDEN, OUTPUTS, BATCH = 32, 6, 3, 4
_SHAPES = {
    "kernel": (HIDDEN, 2, 4, 4),
    "bias": (HIDDEN,),
    "head_weight": (OUTPUTS, HIDDEN),
    "head_bias": (OUTPUTS,),
}


class Net(nn.Module):
    """Two layers; a teacher without gradients; buffers that count, average, and mask.

    Args:
      dtype: of all that is trained.
      seed: of its values.
      idle: a frozen part is there that nobody uses.
      backwards: parameters are listed in the other order.
    """

    def __init__(
        self, dtype: torch.dtype, seed: int = 0, *, idle: bool = False, backwards: bool = False
    ) -> None:
        super().__init__()
        names = list(_SHAPES)[::-1] if backwards else list(_SHAPES)
        for name in names:
            rng = torch.Generator().manual_seed(1000 * seed + list(_SHAPES).index(name))
            values = torch.randn(_SHAPES[name], generator=rng) / math.sqrt(_SHAPES[name][-1] * 4)
            self.register_parameter(name, nn.Parameter(values.to(dtype)))
        teacher = self.bias.detach().clone()
        self.teacher = nn.Parameter(teacher, requires_grad=False)
        if idle:
            self.idle = nn.Parameter(torch.ones(5, dtype=dtype), requires_grad=False)
        self.register_buffer("running", torch.zeros(HIDDEN, dtype=dtype))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("mask", torch.full((3, 3), -math.inf, dtype=dtype).triu(1))
        self.register_buffer("lowest", torch.full((2,), torch.finfo(torch.float16).min, dtype=torch.float16))

    def forward(self, x: Tensor, whole: bool = True) -> Tensor:
        """`[batch, OUTPUTS]`; `[batch, HIDDEN]` without the head."""
        hidden = torch.tanh(x.to(self.kernel.dtype) @ self.kernel.reshape(HIDDEN, INPUTS).t() + self.bias)
        if self.training:
            with torch.no_grad():
                self.running.mul_(0.5).add_(hidden.mean(0), alpha=0.5)
                self.count.add_(1)
        return hidden @ self.head_weight.t() + self.head_bias if whole else hidden

    @property
    def body(self) -> list[nn.Parameter]:
        """The first layer."""
        return [self.kernel, self.bias]

    @property
    def head(self) -> list[nn.Parameter]:
        """The second layer."""
        return [self.head_weight, self.head_bias]

    @property
    def trained(self) -> list[nn.Parameter]:
        """All that is trained, in one order."""
        return [*self.body, *self.head]

    @torch.no_grad()
    def teach(self) -> None:
        """The teacher moves half of the way."""
        self.teacher.mul_(0.5).add_(self.bias, alpha=0.5)

    def flat(self) -> Tensor:
        """`[219]`, a copy of all that is trained."""
        return torch.cat([param.detach().reshape(-1) for param in self.trained])


def batch(rank: int, data: int, number: int = 0) -> Tensor:
    """`[BATCH, INPUTS]` of rank `rank`, for backward pass `number` of batch `data`."""
    rng = torch.Generator().manual_seed(10007 * data + 101 * number + rank)
    return torch.randn(BATCH, INPUTS, generator=rng)
