"""The contract of the stage: what arrives, what is believed, what comes out.

An aggregate is pure. It holds settings only; the caller holds the state and passes `now` in seconds.

    aggregate.require(contributors)                           # can it hold with so many?
    state = aggregate.start()
    state = aggregate.handle(arrival, state, now)             # one rank's contribution is here
    update, verdicts, state = aggregate.poll(state, now)      # what the contributions so far come to

A batch, all ranks of one step, is the simplest case: handle each, poll once. Values are numpy arrays or torch
tensors.

Some aggregates need no single contribution, only their mean, and a collective can form its sum on the way.
Such an aggregate says `in_network = "mean"`. `tweed.exchange` then lets the collective do the work where it
can, with the same result as that of `poll` to rounding. `in_network = None`: each contribution must be seen
alone, by the owner of its range.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

State = TypeVar("State")
Value = Any  # a numpy array or a torch tensor


@dataclass(frozen=True, slots=True)
class Arrival:
    """One rank's contribution.

    Args:
      value: `[numel]` or any shape equal on all ranks; zero where something is missing.
      sender: who sent it.
      base_version: the model's version that the contribution was computed on.
      norm: its length, None if nobody measured it.
      missing: same shape as `value`, 1 where the network lost the number and 0 elsewhere; None: all is there.
    """

    value: Value
    sender: int
    base_version: int = 0
    norm: float | None = None
    missing: Value | None = None


class Reason(Enum):
    """Why a contribution got its weight. The value is the text for people."""

    EQUAL = "every contribution counts alike"
    TRIMMED = "of each number, the largest and the smallest contributions are left out"
    MIDDLE = "of each number, the contribution in the middle counts"
    NEAR_MEDIAN = "of each number, the contributions nearest to the median count"
    NEAR_TRIMMED = "of each number, the contributions nearest to the trimmed mean count"
    NOT_FINITE = "some of its numbers are infinite or not a number"
    SHAPE = "it has another shape than most contributions"


@dataclass(frozen=True, slots=True)
class Verdict:
    """With which weight `sender` was counted (0: not believed), and why."""

    sender: int
    weight: float
    reason: Reason


@dataclass(frozen=True, slots=True)
class Gathered:
    """A state: what has arrived for the next update, ordered by sender."""

    arrivals: tuple[Arrival, ...] = ()

    def plus(self, arrival: Arrival) -> Gathered:
        """With `arrival` in its sender's place: a sender that arrives twice counts once, with its latest."""
        others = [other for other in self.arrivals if other.sender != arrival.sender]
        return Gathered(tuple(sorted([*others, arrival], key=lambda one: one.sender)))


@runtime_checkable
class Aggregate(Protocol[State]):
    """What the sum is and whom to believe."""

    in_network: ClassVar[Literal["mean"] | None]

    def require(self, contributors: int) -> None:
        """Raises UsageError if the aggregate cannot hold what it promises with so few."""
        ...

    def start(self) -> State:
        """The state before the first arrival."""
        ...

    def handle(self, arrival: Arrival, state: State, now: float) -> State:
        """The state after `arrival`, which came in at `now` (seconds)."""
        ...

    def poll(self, state: State, now: float) -> tuple[Value | None, tuple[Verdict, ...], State]:
        """The update so far (None: nothing arrived), a verdict per sender, the state for the next one."""
        ...
