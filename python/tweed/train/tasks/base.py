"""What a task is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tweed.data import Arrays

#: Makes an optimizer of parameters and a learning rate.
MakeOptimizer = Callable[[Iterable[nn.Parameter], float], torch.optim.Optimizer]


@dataclass(frozen=True, slots=True)
class Task:
    """A model to train. Its loss is the cross entropy, its score the share of right predictions.

    Attributes:
      model: makes the model for a data set. It maps inputs to scores, `[batch, classes]`, or for texts
        `[batch, classes, length]`.
      inputs: turns samples into what the model takes.
      optimizer: makes the optimizer.
    """

    model: Callable[[Arrays], nn.Module]
    inputs: Callable[[NDArray[np.uint8]], Tensor]
    optimizer: MakeOptimizer


def sgd(params: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """Stochastic gradient descent with momentum 0.9."""
    return torch.optim.SGD(params, lr=lr, momentum=0.9)


def adamw(params: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """AdamW with torch's defaults but a weight decay of 0.1."""
    return torch.optim.AdamW(params, lr=lr, weight_decay=0.1)


def targets(y: NDArray[np.uint8]) -> Tensor:
    """Classes as int64, in the shape of `y`."""
    return torch.from_numpy(y.astype(np.int64))
