"""The server's side: what came in a step, and when it is enough.

    an event is                                     it
    a contribution to the open step, a new one      counts
    a contribution to a step that is over           is thrown away, and counted as late
    a worker's gradient is not finite               closes the open step, with nothing to add up
    a worker has heard that a step is over          is not behind any more

The open step is over when what came decodes, and the slowest worker has heard of all steps but the last
`most_behind`. The next one is open then, and its code chosen. What counts is decided by the order of events
alone: the same ones, in the same order, give the same updates.

What cannot happen: a contribution to one step counts in another, or twice; a step has two updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tweed.data.coding import Work
from tweed.errors import DataError
from tweed.exchange.coded_steps.choice import Choice, Tally

__all__ = ["Broken", "CodedStepServer", "Contribution", "Heard", "Tally", "Update"]


class Contribution(NamedTuple):
    """A message of a worker has come, the one at `place` among its messages of the step."""

    worker: int
    step: int
    place: int
    value: Any


class Broken(NamedTuple):
    """A worker's gradient is not finite."""

    worker: int
    step: int


class Heard(NamedTuple):
    """A worker knows that the step is over, and what it did in it."""

    worker: int
    step: int
    tally: Tally


@dataclass(frozen=True, slots=True)
class Update:
    """A step is over.

    Attributes:
      terms: what adds up, in order: a message's value, and the weight of each of its parts.
      divisor: of the sum.
      choice: number of the next step's code.
      broken: the worker whose gradient is not finite; None: nobody's.
    """

    step: int
    terms: tuple[tuple[Any, tuple[float, ...]], ...]
    divisor: int
    choice: int
    broken: int | None = None


@dataclass(slots=True)
class CodedStepServer:
    """See above.

    Args:
      works: that may be chosen, all of the same workers.
      choice: which of them is next.
      most_behind: steps.

    Attributes:
      step: that is open.
      late: contributions that were thrown away.
    """

    works: Sequence[Work]
    choice: Choice
    most_behind: int = 32
    step: int = 0
    late: int = 0
    _came: dict[tuple[int, int], Any] = field(default_factory=dict)
    _update: Update | None = None
    _heard: list[int] = field(default_factory=list)  # per worker, the last step

    def __post_init__(self) -> None:
        self._heard = [self.step - 1 for _ in self.works[0].tasks]

    @property
    def work(self) -> Work:
        """The work of the open step."""
        return self.works[self.choice.now]

    @property
    def all_heard(self) -> bool:
        """Nothing more comes of steps that are over."""
        return min(self._heard) == self.step - 1

    def handle(self, event: Contribution | Broken | Heard) -> None:
        """Something has come. Raises DataError for what cannot be."""
        if not 0 <= event.worker < len(self._heard) or event.step > self.step:
            raise DataError(f"worker {event.worker} is at step {event.step}, and the server at {self.step}")
        if isinstance(event, Heard):
            self._heard[event.worker] = event.step
            self.choice.note(event.tally)
        elif event.step < self.step:
            self.late += 1
        elif isinstance(event, Broken):
            self._update = Update(self.step, (), 1, self.choice.now, event.worker)
        else:
            self._count(event)

    def _count(self, event: Contribution) -> None:
        if not 0 <= event.place < len(self.work.messages[event.worker]):
            raise DataError(f"worker {event.worker} has no message {event.place} in {self.step}")
        if self._update is not None or (event.worker, event.place) in self._came:
            return
        self._came[event.worker, event.place] = event.value
        decoded = self.work.decode([*self._came])
        if decoded is not None:
            values = [*self._came.values()]
            terms = tuple((values[term.place], term.weights) for term in decoded.terms)
            self._update = Update(self.step, terms, decoded.divisor, self.choice.now)

    def poll(self) -> Update | None:
        """The open step's update, once; None: it is not over."""
        if self._update is None or self.step - 1 - min(self._heard) > self.most_behind:
            return None
        update, self._update = self._update, None
        self._came.clear()
        self.step += 1
        self.choice.stepped()
        return Update(update.step, update.terms, update.divisor, self.choice.now, update.broken)

    def restart(self, step: int, choice: int) -> None:
        """Goes on at the step, with nothing on its way."""
        self.step, self.choice.now, self._update = step, choice, None
        self._came.clear()
        self.__post_init__()
