"""How far each optimizer step moves the model."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor


class StepLength:
    """Measures steps of `params`. Cost: a copy of them, and two passes per step."""

    def __init__(self, params: Iterable[Tensor]) -> None:
        self._params = [param.detach() for param in params]
        self._before = [param.clone() for param in self._params]

    def begin(self) -> None:
        """A step begins."""
        for kept, param in zip(self._before, self._params, strict=True):
            kept.copy_(param)

    def measure(self) -> float:
        """Length of the step that has ended, over all parameters."""
        pairs = zip(self._params, self._before, strict=True)
        squares = [torch.linalg.vector_norm((param - kept).float()).square() for param, kept in pairs]
        return math.sqrt(sum(float(square) for square in squares))
