"""Fashion-MNIST: two convolutions and two linear layers, 206,922 parameters."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tweed.data import Arrays
from tweed.train.tasks.base import Task, sgd


def _model(arrays: Arrays) -> nn.Module:
    layers = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 128),
        nn.ReLU(),
        nn.Linear(128, arrays.classes),
    )
    return layers.to(memory_format=torch.channels_last)  # quicker on CPUs


def _inputs(x: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(x.astype(np.float32) / 255.0 - 0.286).unsqueeze(1)  # 0.286: the mean over the set


TASK = Task(_model, _inputs, sgd)
