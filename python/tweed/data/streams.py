"""Streams of samples for many clients, and models that are computed for all of them at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tweed.data.sets import load

#: Outputs `[clients, outputs]` of each client's parameters `[clients, numel]` and sample `[clients, ...]`.
Outputs = Callable[[Tensor, Tensor], Tensor]
#: The loss of each client: `[clients]`, of outputs and targets.
Losses = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Learner:
    """A model and its loss.

    Attributes:
      shapes: of the parameters, side by side.
      outputs, losses: see there.
      start: `[numel]`.
    """

    shapes: tuple[tuple[int, ...], ...]
    outputs: Outputs
    losses: Losses
    start: Tensor

    def gradients(self, params: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and gradients `[clients, numel]` at `params`, `[numel]`, one sample per client."""
        own = params.expand(len(x), -1).clone().requires_grad_()
        outputs = self.outputs(own, x)
        (gradients,) = torch.autograd.grad(self.losses(outputs, y).sum(), own)
        return outputs.detach(), gradients


def _entropy(outputs: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(outputs, y, reduction="none")


def _split(params: Tensor, shapes: tuple[tuple[int, ...], ...]) -> list[Tensor]:
    """Each client's tensors: `[clients, *shape]`."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    parts = torch.split(params, sizes, dim=1)
    return [part.reshape(-1, *shape) for part, shape in zip(parts, shapes, strict=True)]


def _start(shapes: tuple[tuple[int, ...], ...], seed: int) -> Tensor:
    """Glorot's uniform numbers for matrices, zeros for the rest."""
    random = torch.Generator().manual_seed(seed)
    parts = []
    for shape in shapes:
        limit = (6 / sum(shape)) ** 0.5 if len(shape) == 2 else 0.0
        parts.append((torch.rand(int(np.prod(shape)), generator=random) * 2 - 1) * limit)
    return torch.cat(parts)


def perceptron(hidden: int = 32, seed: int = 0) -> Learner:
    """One hidden layer on pictures of 28 by 28; ten classes."""
    shapes = ((784, hidden), (hidden,), (hidden, 10), (10,))

    def outputs(params: Tensor, x: Tensor) -> Tensor:
        w1, b1, w2, b2 = _split(params, shapes)
        active = torch.relu(torch.bmm(x.reshape(len(x), 1, 784), w1)[:, 0] + b1)
        return torch.bmm(active[:, None], w2)[:, 0] + b2

    return Learner(shapes, outputs, _entropy, _start(shapes, seed))


def convolutions(seed: int = 0) -> Learner:
    """Two convolutions of 32 and 64 filters of 3 by 3, each halved, and a linear layer: 34,826 parameters.

    Source: the network of OFedQIT's code.
    """
    shapes = ((9, 32), (32,), (288, 64), (64,), (1600, 10), (10,))

    def outputs(params: Tensor, x: Tensor) -> Tensor:
        w1, b1, w2, b2, w3, b3 = _split(params, shapes)
        first = _convolved(x, w1, b1, 26)
        second = _convolved(first, w2, b2, 11)
        return torch.bmm(second.reshape(len(x), 1, 1600), w3)[:, 0] + b3

    return Learner(shapes, outputs, _entropy, _start(shapes, seed))


def _convolved(x: Tensor, weights: Tensor, bias: Tensor, side: int) -> Tensor:
    """Filters of each client over its own picture, the largest of each two by two, above zero."""
    patches = F.unfold(x, 3).transpose(1, 2)
    out = torch.bmm(patches, weights) + bias[:, None]
    pictures = out.transpose(1, 2).reshape(len(x), -1, side, side)
    return torch.relu(F.max_pool2d(pictures, 2))


def regression(numel: int) -> Learner:
    """Least squares, from zero."""

    def outputs(params: Tensor, x: Tensor) -> Tensor:
        return (params * x).sum(dim=1, keepdim=True)

    def losses(out: Tensor, y: Tensor) -> Tensor:
        return (out[:, 0] - y).square() / 2

    return Learner(((numel,),), outputs, losses, torch.zeros(numel))


@dataclass(frozen=True, slots=True)
class Stream:
    """Samples as they come: `x` `[slots, clients, ...]`, `y` `[slots, clients]`."""

    x: Tensor
    y: Tensor


def pictures(clients: int, slots: int, seed: int) -> Stream:
    """Fashion-MNIST, shuffled; every picture comes once, as long as they last. Not MNIST, on which the paper
    reports."""
    train = load("fashion-mnist").train
    # numpy's generator, not `tweed.rng`: published figures rest on this order.
    order = np.random.default_rng(seed).permutation(len(train.x))[: clients * slots]
    x = torch.from_numpy(train.x[order].astype(np.float32) / 255).reshape(slots, clients, 1, 28, 28)
    return Stream(x, torch.from_numpy(train.y[order].astype(np.int64)).reshape(slots, clients))


def lines(clients: int, slots: int, numel: int, seed: int) -> Stream:
    """Linear targets with noise; every client sees its own part of space, so that gradients differ. No
    drift."""
    random = torch.Generator().manual_seed(seed)
    truth = torch.randn(numel, generator=random)
    scales = 0.2 + torch.rand(clients, numel, generator=random)
    x = torch.randn(slots, clients, numel, generator=random) * scales / numel**0.5
    return Stream(x, x @ truth + 0.3 * torch.randn(slots, clients, generator=random))
