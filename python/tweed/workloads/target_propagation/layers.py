"""A layer that learns from its target, and the head from which the first target comes.

With a layer's input `h`, its output `f(h) = norm(tanh(W h))` and the feedback `g(u) = norm(tanh(V u))`, the
backward pass of a layer gets the distance of its output from its target, `e = f(h) - t`. From it come

    W's gradient        that of ||t - f(h)||^2, mean over the batch, with h held constant
    the layer below     e' = h - norm(g(t) + h - g(f(h)))

W's gradient is there before the layer below has its target, so its exchange begins at once, from the last
layer to the first. `norm` makes each value's mean 0 and variance 1 over the batch, or does nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tweed.errors import DataError
from tweed.workloads.target_propagation.feedback import Feedback

_EPSILON = 1e-10


class TargetLayer(nn.Module):
    """`norm(tanh(W h))`, or the last layer's `norm(W h)`, whose W learns from a target.

    Args:
      inputs, outputs: values of a sample.
      feedback: of the weights that bring the target down; None: the first layer, which has nobody below.
      layer: its number, from 0, for the seed of these.
      is_last: without tanh.
      normalise: with norm, in f and in g.
      generator: of W, which begins orthogonal; None: torch's.

    Attributes:
      weight: W, `[outputs, inputs]`.
      feedback: gives V, `[inputs, outputs]`; None in the first layer.

    Cost: of a backward pass, that of W alone, and two products with V.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        feedback: Feedback | None,
        layer: int = 0,
        *,
        is_last: bool = False,
        normalise: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        nn.init.orthogonal_(self.weight, generator=generator)
        self.feedback = None if feedback is None else feedback.make(outputs, inputs, layer)
        self.is_last, self.normalise = is_last, normalise

    def forward(self, h: Tensor) -> Tensor:
        """The output, `[batch, outputs]`, of `h`, `[batch, inputs]`.

        Raises: DataError where the feedback does.
        """
        out = self.step(h.detach())
        if self.feedback is None:
            return _Doubled.apply(out)  # type: ignore[no-any-return]
        self.feedback()  # wrong weights are named before the loss is known
        return _Target.apply(out, h, self)  # type: ignore[no-any-return]

    def step(self, h: Tensor) -> Tensor:
        """The layer's function f, in torch's ordinary gradient."""
        out = nn.functional.linear(h, self.weight)
        out = out if self.is_last else torch.tanh(out)
        return standardised(out) if self.normalise else out

    def back(self, u: Tensor) -> Tensor:
        """The feedback g, `[batch, inputs]`, of `u`, `[batch, outputs]`."""
        assert self.feedback is not None
        out = torch.tanh(nn.functional.linear(u, self.feedback()))
        return standardised(out) if self.normalise else out

    def below(self, h: Tensor, out: Tensor, apart: Tensor) -> Tensor:
        """How far `h` is from the target of the layer below, where `out` is `apart` from its own."""
        target = self.back(out - apart) + h - self.back(out)
        return h - (standardised(target) if self.normalise else target)


class FirstTarget(nn.Module):
    """Passes outputs on; backwards, the last layer's target is `output - beta * gradient` of a sample's loss.

    Args:
      beta: how far the target is from the output.

    The loss is to be a mean over the batch. Scaling it, as gradient scalers do, would move the target.
    """

    def __init__(self, beta: float) -> None:
        super().__init__()
        self.beta = beta

    def forward(self, outputs: Tensor) -> Tensor:
        """The outputs, `[batch, values]`."""
        return _First.apply(outputs, self.beta)  # type: ignore[no-any-return]


def standardised(u: Tensor) -> Tensor:
    """Each value with mean 0 and variance 1 over the batch, `[batch, values]`."""
    return (u - u.mean(0)) / (u.var(0, correction=0) + _EPSILON).sqrt()


class _Target(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, out: Tensor, h: Tensor, layer: TargetLayer) -> Tensor:
        ctx.save_for_backward(out, h)
        ctx.layer = layer
        return out.view_as(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *apart: Tensor) -> tuple[Tensor, Tensor | None, None]:
        out, h = ctx.saved_tensors
        below = ctx.layer.below(h, out, _finite(apart[0])) if ctx.needs_input_grad[1] else None
        return _doubled(apart[0]), below, None


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, out: Tensor) -> Tensor:
        return out.view_as(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *apart: Tensor) -> Tensor:
        return _doubled(_finite(apart[0]))


class _First(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, outputs: Tensor, beta: float) -> Tensor:
        ctx.beta = beta
        return outputs.view_as(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.beta * len(gradient[0]) * gradient[0], None


def _doubled(apart: Tensor) -> Tensor:
    """The gradient of a mean over the batch of `||t - f||^2` by f."""
    return apart * (2 / len(apart))


def _finite(apart: Tensor) -> Tensor:
    if not bool(apart.isfinite().all()):
        raise DataError(
            "a target is not finite: the loss has grown without bound. Check the batch, or take a smaller "
            "learning rate or beta"
        )
    return apart
