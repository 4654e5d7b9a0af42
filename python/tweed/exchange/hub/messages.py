"""What crosses a link between a worker and its hub."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker is idle; `last` is the last task that it knows the outcome of, 0 for none."""

    last: int = 0


@dataclass(frozen=True, slots=True)
class Offer:
    """What a worker has to send for a task.

    Args:
      number: of the task.
      numbytes: of the payload.
      norm: its length.
      samples: that it was computed on.
      loss: at the model that came with the task; not a number: nothing is said of it.
    """

    number: int
    numbytes: int
    norm: float = 0.0
    samples: float = 1.0
    loss: float = math.nan


@dataclass(frozen=True, slots=True)
class Payload:
    """What was granted."""

    number: int
    value: Any


@dataclass(frozen=True, slots=True)
class Task:
    """Compute on the model of this version, which comes with the message. Numbers of a member ascend."""

    number: int
    version: int


@dataclass(frozen=True, slots=True)
class Grant:
    """Send the payload now."""

    number: int


class Why(Enum):
    """What became of a contribution. The value is the text for people."""

    COUNTED = "it goes into the next update, if there are enough for the rule"
    LATE = "too many updates were committed since the version that it was computed on"
    EXPIRED = "its lease has ended"
    UNKNOWN = "there is no such task"
    ABSURD = "its description is: so many samples or bytes cannot be"
    NOT_GRANTED = "it was sent without a grant"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a task: it is over. The worker is idle."""

    number: int
    why: Why

    @property
    def goes_on(self) -> bool:
        """Whether the hub hands out another task by itself: the worker is there, and needs not ask."""
        return self.why in (Why.COUNTED, Why.LATE)


@dataclass(frozen=True, slots=True)
class End:
    """Training has ended with the model of this version, which comes with the message."""

    version: int


@dataclass(frozen=True, slots=True)
class Leave:
    """A worker goes, and does not expect anything more; it may come back with a `Ready`."""


FromWorker = Ready | Offer | Payload | Leave
FromHub = Task | Grant | Outcome | End
