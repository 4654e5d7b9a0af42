"""Take several steps alone, then exchange: local SGD, and with an outer optimiser DiLoCo."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from tweed.cadence.base import Cadence, Decision, Event, StepDone, Stop
from tweed.cadence.outer import Outer
from tweed.errors import UsageError


@dataclass(frozen=True, slots=True)
class Round:
    """State of `LocalSteps`: steps since the last exchange, and whether one model is wanted now."""

    steps: int = 0
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class LocalSteps(Cadence[Round]):
    """Exchanges after every `every` steps, and what is left of a round at `Stop`.

    Args:
      every: steps per round, 1 or more. Must be equal on all ranks.
      outer: what becomes of the mean movement of a round; None: the model moves by it.
      proximal: each step's loss has `proximal / 2` times the squared distance to where the round began beside
        it, so that ranks with unlike data stay near each other (FedProx).

    Raises: UsageError if `every` is less than 1, `outer` no outer optimiser, or `proximal` below 0.
    Cost: one exchange per `every` steps.
    Source: Stich, "Local SGD converges fast and communicates little", 2018; with `outer=Nesterov()`: DiLoCo,
      arXiv 2311.08105, 2023; `proximal` as in Li et al., "Federated optimization in heterogeneous networks",
      2020.
    """

    every: int
    outer: Outer[Any] | None = None
    proximal: float = 0.0

    def __post_init__(self) -> None:
        if not _is_count(self.every):
            raise UsageError(f"local steps: every={self.every!r} is no number of steps; give 1 or more")
        if self.outer is not None and (isinstance(self.outer, type) or not isinstance(self.outer, Outer)):
            raise UsageError(f"local steps: outer={self.outer!r} is no outer optimiser; give Nesterov()")
        if not 0 <= self.proximal < math.inf:
            raise UsageError(f"local steps: proximal={self.proximal!r} is to be 0 or more")

    @property
    def round_steps(self) -> int:
        return self.every

    @property
    def exchanges(self) -> frozenset[str]:
        return frozenset({"difference", "model"} if self.outer is None else {"difference"})

    @property
    def reason(self) -> str:
        if self.outer is None:
            return "between exchanges the models differ, so gradients belong to different models"
        return "the outer optimiser works on how far models moved in a round"

    def start(self) -> Round:
        """The state before the first step."""
        return Round()

    def handle(self, event: Event, state: Round, now: float) -> Round:
        """Counts steps, and notes that one model is wanted."""
        if isinstance(event, StepDone):
            return Round(steps=state.steps + 1)
        return replace(state, stopped=isinstance(event, Stop))

    def poll(self, state: Round, now: float) -> tuple[Decision, Round]:
        """To exchange when the round is full, or when it has steps in it and one model is wanted."""
        if state.steps >= self.every:
            return Decision.ROUND_FULL, Round()
        if state.stopped and state.steps:
            return Decision.LAST_ROUND, Round()
        return (Decision.ROUND_OPEN if state.steps else Decision.AGREED), replace(state, stopped=False)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
