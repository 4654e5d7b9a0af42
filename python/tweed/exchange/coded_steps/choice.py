"""Which code, and how many blocks of samples per worker: by how long blocks and messages took.

Workers tell with each step how long they computed and sent. Every `_EVERY` steps the model of stragglers that
fits that best says what will be quickest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tweed.cadence import ByShards
from tweed.data.coding.times import choose, fitted

#: Steps between choices: a choice takes tenths of a second.
_EVERY = 32
#: Schemes of `times` that are chosen from, by the codes that they are.
_SCHEMES = {
    "uncoded, one shard": "uncoded",
    "uncoded, messages": "uncoded",
    "GC": "gradient_code",
}


class Tally(NamedTuple):
    """What a worker did in a step: how much, and for how many seconds in all."""

    tasks: int = 0
    computing_s: float = 0.0
    messages: int = 0
    sending_s: float = 0.0


def candidates(cadence: ByShards) -> list[tuple[str, int]]:
    """Codes and loads that may be chosen; the first is where it begins."""
    if cadence.code != "auto":
        return [(cadence.code, cadence.load)]
    loads = range(cadence.load, 0, -1)
    return [("uncoded", load) for load in loads] + [("gradient_code", load) for load in loads if load > 1]


@dataclass(slots=True)
class Choice:
    """See above.

    Args:
      among: as `candidates` has them.
      workers: how many there are.

    Attributes:
      now: number of that of the open step.
    """

    among: list[tuple[str, int]]
    workers: int
    now: int = 0
    _steps: int = 0
    _task_s: list[float] = field(default_factory=list)
    _message_s: list[float] = field(default_factory=list)

    def note(self, tally: Tally) -> None:
        """A worker tells of a step."""
        if tally.tasks and tally.messages and len(self.among) > 1:
            self._task_s.append(tally.computing_s / tally.tasks)
            self._message_s.append(tally.sending_s / tally.messages)

    def stepped(self) -> None:
        """A step is over."""
        self._steps += 1
        if self._steps < _EVERY or not self._task_s:
            return
        loads = sorted({load for _, load in self.among})
        scheme, load = choose(fitted(self._task_s, self._message_s), self.workers, loads, schemes=[*_SCHEMES])
        chosen = "uncoded" if scheme.endswith("one shard") else _SCHEMES[scheme]
        # One shard alone is one message without a code.
        alone = scheme.endswith("one shard") or load == 1
        self.now = self.among.index(("uncoded", 1) if alone else (chosen, load))
        self._steps = 0
        self._task_s.clear()
        self._message_s.clear()
