"""What crosses a link between a worker and its hub."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tweed.aggregate import Arrival


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
      norm: of the contribution, as it crosses; not a number: nothing is said of it.
      samples: that it was computed on.
      loss: at the model that came with the task; not a number: nothing is said of it.
      model_bytes, model_s: of the model that came with the task, and how long that took; 0: nobody measured.
    """

    number: int
    numbytes: int
    norm: float = math.nan
    samples: float = 1.0
    loss: float = math.nan
    model_bytes: int = 0
    model_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EagerOffer:
    """An offer, and its payload with it: the hub keeps that until it grants it."""

    offer: Offer
    value: Any


@dataclass(frozen=True, slots=True)
class Payload:
    """What was granted, for the hub or for the member `via`; with `copy_first` the standby gets it first."""

    number: int
    value: Any
    via: int | None = None
    copy_first: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """Compute on the model of this version, which comes with the message, or is to be fetched from the member
    `via`. Numbers of a member ascend. A payload of at most `eager_bytes` goes with its offer."""

    number: int
    version: int
    via: int | None = None
    eager_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """From a worker to the member `via`: hand over the model of this version."""

    version: int
    via: int


@dataclass(frozen=True, slots=True)
class ModelGrant:
    """To a member that has the newest model: `member` may fetch that version of it."""

    version: int
    member: int


@dataclass(frozen=True, slots=True)
class Handed:
    """From a member that was asked for the model of this version: here it is; or it is not `there`."""

    version: int
    there: bool = True


@dataclass(frozen=True, slots=True)
class Blocked:
    """From a worker: what was granted cannot go the way that was named, as that member cannot be reached."""

    number: int


@dataclass(frozen=True, slots=True)
class Grant:
    """Send the payload now: to the hub, or to the member `via`, which adds it up with others. A later grant
    with another way counts: what was sent before may be lost. With `copy_first` the standby gets it first."""

    number: int
    via: int | None = None
    copy_first: bool = False


@dataclass(frozen=True, slots=True)
class Gather:
    """To an aggregator: add up what these members send for these tasks, in this order.

    Args:
      group: its number; groups of a hub have ascending ones.
      tasks: members and numbers.
      within_s: after so many seconds what is there goes to the hub as it is.
      copy_first: the standby gets the sum before.
      norms: of what they have offered, as these; not a number: its member has said nothing of it.
    """

    group: int
    tasks: tuple[tuple[int, int], ...]
    within_s: float
    copy_first: bool = False
    norms: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class CancelGroup:
    """To an aggregator: nobody waits for this group any more."""

    group: int


@dataclass(frozen=True, slots=True)
class Sum:
    """From an aggregator: what a group comes to.

    Args:
      tasks: that are in it, in the order of the sum.
      value: the sum of what the payloads stand for, not compressed.
      left_out: tasks whose payloads are there and are no contributions: not finite, or of another shape.
      took_s: how long after the `Gather` the payloads of `tasks` were there.
    """

    group: int
    tasks: tuple[tuple[int, int], ...]
    value: Any
    left_out: tuple[tuple[int, int], ...] = ()
    took_s: tuple[float, ...] = ()
    copy_first: bool = False


@dataclass(frozen=True, slots=True)
class Resume:
    """A worker has this for a task of a hub that is gone. It is counted, or was: the outcome says which.

    Args:
      version: that it was computed on.
    """

    offer: Offer
    version: int

    @property
    def number(self) -> int:
        """The number of the task."""
        return self.offer.number


@dataclass(frozen=True, slots=True)
class Unit:
    """What a hub has counted as one: a payload, or a sum.

    Args:
      tasks: that are in it.
      group: of the sum; None: it is a payload.
      left_out: these are the ones that are in the group and not in the sum, as they are no contributions.
      base_version, norm, samples, delay, loss: as of an `Arrival`.
      via: who has added it up.
    """

    tasks: tuple[tuple[int, int], ...]
    group: int | None
    left_out: bool
    base_version: int
    norm: float | None
    samples: float
    delay: int
    loss: float = math.nan
    via: int | None = None

    @property
    def key(self) -> tuple[int | None, ...]:
        """What its copy goes by: the task; for a sum, the group and the member that has added it up."""
        return self.tasks[0] if self.group is None else (self.group, self.via, 0)

    def arrival(self, value: Any, missing: Any = None) -> Arrival:
        """What the rule receives for `value`, which has no number where `missing` is 1."""
        senders = () if self.group is None else tuple(member for member, _ in self.tasks)
        return Arrival(
            value,
            self.tasks[0][0],
            self.base_version,
            self.norm,
            missing,
            samples=self.samples,
            delay=self.delay,
            senders=senders,
            loss=self.loss,
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the hub's log, for its standby: what the commit of this version is made of, in order."""

    version: int
    units: tuple[Unit, ...]

    @property
    def tasks(self) -> tuple[tuple[int, int], ...]:
        """All that are in it."""
        return tuple(task for unit in self.units for task in unit.tasks)


@dataclass(frozen=True, slots=True)
class Copy:
    """To the standby: a payload with what describes it, or a sum.

    Args:
      tasks: that are in it.
      group: of a sum; None: a payload.
      versions, offers: of the task of a payload.
      via: who has added it up.
    """

    tasks: tuple[tuple[int, int], ...]
    group: int | None
    content: Payload | Sum
    versions: tuple[int, ...] = ()
    offers: tuple[Offer, ...] = ()
    via: int | None = None

    @property
    def key(self) -> tuple[int | None, ...]:
        return self.tasks[0] if self.group is None else (self.group, self.via, 0)


@dataclass(frozen=True, slots=True)
class Kept:
    """To a member: all up to this number that counted is in the standby's model."""

    member: int
    number: int


class OutcomeReason(Enum):
    """What became of a contribution. The value is the text for people."""

    COUNTED = "it goes into the next update, if there are enough for the rule"
    LATE = "too many updates were committed since the version that it was computed on"
    EXPIRED = "its lease has ended"
    UNKNOWN = "there is no such task"
    ABSURD = "its description is: nobody can have this many samples or bytes"
    NOT_GRANTED = "it was sent without a grant"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a task: it is over. The worker is idle."""

    number: int
    why: OutcomeReason

    @property
    def goes_on(self) -> bool:
        """Whether the hub hands out another task by itself: the worker is there, and needs not ask."""
        return self.why in (OutcomeReason.COUNTED, OutcomeReason.LATE)


@dataclass(frozen=True, slots=True)
class End:
    """Training has ended with the model of this version, which comes with the message."""

    version: int


@dataclass(frozen=True, slots=True)
class Leave:
    """A worker goes, and does not expect anything more; it may come back with a `Ready`."""


FromWorker = Ready | Offer | Payload | Leave | Sum | Resume | ModelRequest | Blocked
FromHub = Task | Grant | Outcome | End | Gather | CancelGroup | ModelGrant
#: What a worker hears of members that it fetches from, or sends to.
FromWay = Handed | Blocked


def control_bytes(message: FromWorker | FromHub | Entry | Kept | Copy) -> int:
    """How many bytes a message has besides a payload or a model: a head, and what it lists."""
    listed = len(message.tasks) + len(getattr(message, "left_out", ())) if hasattr(message, "tasks") else 0
    return 56 + 24 * listed
