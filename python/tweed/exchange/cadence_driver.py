"""A run's cadence in real time, and the norm of steps for cadences that decide by it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from tweed.cadence import Cadence, Event, Joined


class CadenceDriver:
    """Holds a cadence's state.

    Args:
      cadence: the strategy's.
      rank, size: which of the ranks that contribute this one is, and how many there are.

    Attributes:
      needs_norm: it must be given the norm of what there is to send, and of each step.
      silent: this rank contributes nothing to the exchange that was decided last.
    """

    def __init__(self, cadence: Cadence[Any], rank: int, size: int) -> None:
        self._cadence = cadence
        self._state = cadence.start()
        self.needs_norm = cadence.needs_norm
        self.silent = False
        self.handle(Joined(rank, size))

    def handle(self, event: Event) -> None:
        """Tells the cadence what has happened."""
        self._state = self._cadence.handle(event, self._state, time.monotonic())

    def decide(self) -> bool:
        """Do ranks exchange now?"""
        decision, self._state = self._cadence.poll(self._state, time.monotonic())
        self.silent = decision.silent
        return decision.exchange

    def state(self) -> dict[str, Any]:
        """The cadence's state, for a checkpoint."""
        return asdict(self._state)

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from the `state` of another run."""
        self._state = replace(self._cadence.start(), **state)


class StepNorm:
    """Measures steps of `params`, as they are at each. Cost: a copy of them, and two passes per step."""

    def __init__(self, params: Iterable[Tensor]) -> None:
        self._params = params
        self._before: list[Tensor] = []

    def begin(self) -> None:
        """Notes where the parameters are when a step begins."""
        now = [param.detach() for param in self._params]
        self._before = self._before or [torch.empty_like(param) for param in now]
        for kept, param in zip(self._before, now, strict=True):
            kept.copy_(param)

    def measure(self) -> float:
        """Length of the step that has ended, over all parameters."""
        pairs = zip(self._params, self._before, strict=True)
        squares = [
            torch.linalg.vector_norm((param.detach() - kept).float()).square() for param, kept in pairs
        ]
        return math.sqrt(sum(float(square) for square in squares))
