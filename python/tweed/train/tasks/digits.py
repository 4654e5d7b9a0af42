"""Digits: a perceptron with one hidden layer, 10,000 parameters."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tweed.data import Arrays
from tweed.train.tasks.base import Task, sgd


def _model(arrays: Arrays) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, arrays.classes))


def _inputs(x: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(x.astype(np.float32) / 16.0)


TASK = Task(_model, _inputs, sgd)
