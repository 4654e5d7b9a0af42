"""What is counted for the next update of a hub, and that update.

units arrive    ->  take        the rule is told of each
when it is time ->  commit      a Step; or an Ask, and after `answered` commit again
too few are left -> abandon     nothing comes of them
then            ->  end         the next batch begins
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tweed.aggregate import Aggregate, Answer, CommitRule, Question
from tweed.errors import UsageError
from tweed.exchange.checkpoint import filled, plain
from tweed.hub.machine.actions import Abandon, Ask, Step
from tweed.hub.machine.updates import update_of
from tweed.hub.wire.messages import Unit


@dataclass(slots=True)
class UpdateBatch:
    """See above. Times are in seconds.

    Args:
      aggregate: what contributions come to.
      when: they do.

    Attributes:
      version: of the model.
      tasks: whose contributions are in it: members and numbers.
      units: as which they came.
      asking: a question is open.
    """

    aggregate: Aggregate[Any]
    when: CommitRule
    version: int = 0
    tasks: list[tuple[int, int]] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    asking: bool = False
    gathered: Any = None
    _empty: Any = None  # what was gathered before the first of the batch
    _first_s: float = math.inf  # when that arrived

    def __post_init__(self) -> None:
        self.gathered = self.aggregate.start()

    def take(self, unit: Unit, value: Any, missing: Any, now: float) -> None:
        """`unit` is in the update; `value` is what it stands for, with no number where `missing` is 1."""
        if not self.tasks:
            self._empty = self.gathered
        self.units.append(unit)
        self.tasks += unit.tasks
        self.gathered = self.aggregate.handle(unit.arrival(value, missing), self.gathered, now)
        self._first_s = min(self._first_s, now)

    def trouble(self) -> str:
        """Why the rule cannot hold with so few contributions; empty: it can.

        Of two nobody can tell which is hostile, though a quarter of two is none.
        """
        if self.aggregate.compares and len(self.tasks) < 3:
            return f"{self.aggregate!r} compares contributions, and there are {len(self.tasks)}"
        try:
            self.aggregate.require(len(self.tasks))
        except UsageError as error:
            return str(error)
        return ""

    def is_due(self, present: int, now: float) -> bool:
        """Whether it is time, with so many members of which something may come."""
        return now >= self._first_s + self.when.within_s or self.when.ready(len(self.tasks), present)

    def due_s(self) -> float:
        """When it is time in any case; infinite: never, or something else has to happen before."""
        waits = self.asking or not self.tasks or self.trouble()
        return math.inf if waits else self._first_s + self.when.within_s

    def commit(self, now: float) -> Step | Ask:
        """The next version, unless the rule has a question first."""
        found, verdicts, self.gathered = self.aggregate.poll(self.gathered, now)
        if isinstance(found, Question):
            self.asking = True
            return Ask(found)
        self.version += 1
        update = update_of(found, verdicts, self.when.one_by_one)
        return Step(update, self.version, tuple(self.tasks), verdicts, tuple(self.units))

    def answered(self, answer: Any, now: float) -> None:
        """What came of the question."""
        assert self.asking  # there was one
        self.asking = False
        self.gathered = self.aggregate.handle(Answer(answer), self.gathered, now)

    def abandon(self, trouble: str) -> Abandon:
        """Nothing comes of it."""
        self.gathered = self._empty
        return Abandon(tuple(self.tasks), trouble)

    def end(self) -> list[tuple[int, int]]:
        """The next one begins. Returns whose contributions were in this one."""
        ended, self.tasks, self.units, self._first_s = self.tasks, [], [], math.inf
        return ended

    def state(self) -> dict[str, Any]:
        """For a checkpoint. What has arrived for the next update is not in it."""
        return {"version": self.version, "gathered": plain(self._empty if self.tasks else self.gathered)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state`."""
        self.version = state["version"]
        self.gathered = filled(self.aggregate.start(), state["gathered"])
