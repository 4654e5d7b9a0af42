"""A small problem to train on: which of four points a noisy input is nearest to."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIZE = 4


def perceptron(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


def sgd(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.1, momentum=0.9)


def batch(rank: int, step: int) -> tuple[Tensor, Tensor]:
    """Eight samples; another eight for every rank and step."""
    chance = torch.Generator().manual_seed(1000 * step + rank)
    y = torch.randint(0, 4, (8,), generator=chance)
    return F.one_hot(y, 8).float() + 0.3 * torch.randn(8, 8, generator=chance), y


def loss(step: int) -> Callable[[int, nn.Module], Tensor]:
    def of(rank: int, model: nn.Module) -> Tensor:
        x, y = batch(rank, step)
        return F.cross_entropy(model(x), y)

    return of


def numbers(model: nn.Module) -> Tensor:
    """All parameters, side by side."""
    return torch.cat([param.detach().reshape(-1) for param in model.parameters()])
