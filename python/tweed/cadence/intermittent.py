"""Exchange every so many steps, and draw who contributes: intermittent transmission."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tweed.cadence.base import Cadence, Decision, Event, Joined, StepDone, Stop
from tweed.errors import UsageError
from tweed.rng import uniform


@dataclass(frozen=True, slots=True)
class IntermittentState:
    """State of `Intermittent`: steps since the last exchange, exchanges so far, and who this is."""

    steps: int = 0
    exchanges: int = 0
    rank: int = 0
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Intermittent(Cadence[IntermittentState]):
    """Exchanges after every `every` steps; each rank contributes with `probability`, by a draw of its own.

    What a silent rank has to send is forgotten or kept, as the memory does it. To be right on average, a
    memory that forgets must multiply what is sent by 1 / probability: `Direct(compressor, weight=1 /
    probability)`. At `Stop` all contribute.

    Args:
      every: steps per exchange, 1 or more; gradients are exchanged at every step only.
      probability: above 0, at most 1.
      seed: of the draws; equal on all ranks.

    Raises: UsageError for other settings.
    Cost: `probability / every` messages per rank and step.
    Source: Park, Kwon, Hong, "Communication-efficient online federated learning framework for nonlinear
      regression", arXiv 2205.06491, 2022 (OFedQIT).
    """

    every: int = 1
    probability: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.every >= 1 and 0 < self.probability <= 1):
            raise UsageError(f"{self!r}: every is 1 or more steps, probability above 0 and at most 1")

    @property
    def may_be_silent(self) -> bool:
        return self.probability < 1

    @property
    def exchanges(self) -> frozenset[str]:
        return frozenset({"difference"} if self.every > 1 else {"gradient", "step", "difference"})

    @property
    def reason(self) -> str:
        if self.every > 1:
            return "between exchanges the models differ, and a silent rank has none to contribute"
        return "a silent rank has no model to contribute"

    def start(self) -> IntermittentState:
        """The state before the first step."""
        return IntermittentState()

    def handle(self, event: Event, state: IntermittentState, now: float) -> IntermittentState:
        """Counts steps, and notes who this is and that one model is wanted."""
        if isinstance(event, Joined):
            return replace(state, rank=event.rank)
        if isinstance(event, StepDone):
            return replace(state, steps=state.steps + 1, stopped=False)
        return replace(state, stopped=isinstance(event, Stop))

    def poll(self, state: IntermittentState, now: float) -> tuple[Decision, IntermittentState]:
        """To exchange at the end of a round, and to contribute if drawn."""
        due = self.every == 1 or state.steps >= self.every
        if state.stopped and (self.every == 1 or not state.steps):
            return Decision.AGREED, replace(state, stopped=False)
        if not (due or state.stopped):
            return (Decision.ROUND_OPEN if state.steps else Decision.AGREED), state
        after = replace(state, steps=0, exchanges=state.exchanges + 1, stopped=False)
        if state.stopped:
            return Decision.LAST_ROUND, after
        drawn = uniform(self.seed, state.rank, state.exchanges) < self.probability
        return (Decision.DRAWN if drawn else Decision.NOT_DRAWN), after
