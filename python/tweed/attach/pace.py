"""A run's cadence in real time: told what happens, asked when to talk."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from tweed.cadence import Cadence, Event, Joined


class Pace:
    """Holds a cadence's state.

    Args:
      cadence: the strategy's.
      rank, size: which of the ranks that have something to say this one is, and how many there are.

    Attributes:
      weighs: it must be told the length of what there is to say, and of each step.
      silent: this rank contributes nothing to the exchange that was decided last.
    """

    def __init__(self, cadence: Cadence[Any], rank: int, size: int) -> None:
        self._cadence = cadence
        self._state = cadence.start()
        self.weighs = cadence.weighs
        self.silent = False
        self.tell(Joined(rank, size))

    def tell(self, event: Event) -> None:
        """Something happened."""
        self._state = self._cadence.handle(event, self._state, time.monotonic())

    def decide(self) -> bool:
        """Do ranks exchange now?"""
        decision, self._state = self._cadence.poll(self._state, time.monotonic())
        self.silent = decision.silent
        return decision.exchange

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return asdict(self._state)

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from the `state` of another run."""
        self._state = replace(self._cadence.start(), **state)
