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
    """State of `LocalSteps`.

    Args:
      steps: since the round began.
      stopped: one model is wanted now.
      turn: how many fragments have had their turn in this round.
      earlier: some have moved in the round before, since their turn.
    """

    steps: int = 0
    stopped: bool = False
    turn: int = 0
    earlier: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class LocalSteps(Cadence[Round]):
    """Exchanges after every `every` steps, and what is left of a round at `Stop`.

    With a `delay` nobody waits for an exchange: ranks take further steps while it is under way, and their
    models move by its result `delay` steps later. With `fragments` the model is cut into so many parts of
    equal bytes. Each part is exchanged once per round, one after the other at equal distances, so that a link
    is busy more evenly.

    Args:
      every: steps per round, 1 or more. Must be equal on all ranks.
      outer: what becomes of the mean movement of a round; None: the model moves by it.
      proximal: each step's loss has `proximal / 2` times the squared distance to where the round began beside
        it, so that ranks with unlike data stay near each other (FedProx).
      delay: steps from the beginning of an exchange to when the model moves by it, at most `every`; 0: ranks
        wait for it.
      fragments: parts of the model, at most `every`.

    Raises: UsageError if `every` is less than 1, `outer` no outer optimiser, `proximal` below 0, `delay` or
      `fragments` greater than `every`, or one of these is given beside `proximal`.
    Cost: one exchange per `every` steps, or one of each fragment.
    Source: Stich, "Local SGD converges fast and communicates little", 2018; with `outer=Nesterov()`: DiLoCo,
      arXiv 2311.08105, 2023; `proximal` as in Li et al., "Federated optimization in heterogeneous networks",
      2020; `delay` and `fragments` as in Streaming DiLoCo, arXiv 2501.18512, 2025.
    Example:
      >>> LocalSteps(every=4, delay=2)
      LocalSteps(every=4, outer=None, proximal=0.0, delay=2)
    """

    every: int
    outer: Outer[Any] | None = None
    proximal: float = 0.0
    delay: int = 0
    fragments: int = 1

    def __post_init__(self) -> None:
        if not _is_count(self.every):
            raise UsageError(f"local steps: every={self.every!r} is no number of steps; give 1 or more")
        if self.outer is not None and (isinstance(self.outer, type) or not isinstance(self.outer, Outer)):
            raise UsageError(f"local steps: outer={self.outer!r} is no outer optimiser; give Nesterov()")
        if not 0 <= self.proximal < math.inf:
            raise UsageError(f"local steps: proximal={self.proximal!r} is to be 0 or more")
        if not (self.delay == 0 or (_is_count(self.delay) and self.delay <= self.every)):
            raise UsageError(
                f"local steps: delay={self.delay!r} is to be a number of steps from 0 to "
                f"every={self.every}, as a part of the model is exchanged once at a time"
            )
        if not (_is_count(self.fragments) and self.fragments <= self.every):
            raise UsageError(
                f"local steps: fragments={self.fragments!r} is to be from 1 to every={self.every}, as the "
                "parts of the model are exchanged after different steps"
            )
        if self.proximal and self.overlapped:
            raise UsageError(
                f"local steps: proximal={self.proximal!r} pulls the whole model to where its round began, "
                "and with delay or fragments there is no such point. Leave one of them out"
            )

    def __repr__(self) -> str:
        # What was added later is left out where it changes nothing, as stored runs compare this text.
        later = {"delay": (self.delay, 0), "fragments": (self.fragments, 1)}
        more = "".join(f", {name}={value!r}" for name, (value, usual) in later.items() if value != usual)
        return f"LocalSteps(every={self.every!r}, outer={self.outer!r}, proximal={self.proximal!r}{more})"

    @property
    def round_steps(self) -> int:
        return self.every

    @property
    def exchanges(self) -> frozenset[str]:
        only_movements = self.outer is not None or self.overlapped
        return frozenset({"difference"} if only_movements else {"difference", "model"})

    @property
    def reason(self) -> str:
        if self.overlapped:
            return "models go on during an exchange, so that it can say only how far they are to move"
        if self.outer is None:
            return "between exchanges the models differ, so gradients belong to different models"
        return "the outer optimiser works on how far models moved in a round"

    def start(self) -> Round:
        """The state before the first step."""
        return Round()

    def handle(self, event: Event, state: Round, now: float) -> Round:
        """Counts steps, and notes that one model is wanted."""
        if isinstance(event, StepDone):
            return replace(state, steps=state.steps + 1, stopped=False)
        return replace(state, stopped=isinstance(event, Stop))

    def poll(self, state: Round, now: float) -> tuple[Decision, Round]:
        """To exchange when the round is full or a fragment's turn has come, or when one model is wanted and
        something has moved since it was exchanged."""
        turn = state.turn + 1
        if state.steps >= self.every * turn // self.fragments:
            if turn < self.fragments:
                return Decision.FRAGMENT, replace(state, turn=turn)
            return Decision.ROUND_FULL, Round(earlier=self.fragments > 1)
        moved = state.steps > 0 or state.earlier
        if state.stopped and moved:
            return Decision.LAST_ROUND, Round()
        return (Decision.ROUND_OPEN if moved else Decision.AGREED), replace(state, stopped=False)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
