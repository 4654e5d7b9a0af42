"""What a hub knows of each of its members."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from tweed.hub.wire.messages import Offer, OutcomeReason


class Phase(Enum):
    """How far a member's task is."""

    DONE = "done"
    OPEN = "open"
    HELD = "held"
    OFFERED = "offered"
    GRANTED = "granted"
    ARRIVED = "arrived"


@dataclass(slots=True)
class Member:
    """What the hub knows of one.

    Attributes:
      number: of its newest task.
      phase: of that.
      version: that it computes on.
      offer: what it has described.
      described: it has done so for this task: nothing else may come of it, over whatever link.
      last: number of the last task that is over.
      why: how that ended.
      linked: there is a link.
      waits: it wants a task, and is linked.
      in_batch: a contribution of its is in the next update.
      expected: it will come, and has not yet.
      drops: in a row.
      due_s: so long updates wait for what it has a task for, however often it begins anew; infinite: it has
        had no task since it contributed.
      awaited: updates wait for it: it has contributed since it kept them waiting so long, or never did that.
      via: to whom it was granted to send; None: to the hub.
      until: when its lease ends.
      resumed: the task is one of a hub that is gone, and its worker asks for the next one itself.
      counted: number of the last task that counted.
      told: how often its task has gone over this link.
      copy_first: the standby is to have the contribution before the hub.
    """

    number: int = 0
    phase: Phase = Phase.DONE
    version: int = 0
    offer: Offer | None = None
    described: bool = False
    last: int = 0
    why: OutcomeReason = OutcomeReason.UNKNOWN
    linked: bool = False
    waits: bool = False
    in_batch: bool = False
    expected: bool = False
    drops: int = 0
    due_s: float = math.inf
    awaited: bool = True
    via: int | None = None
    until: float = math.inf
    resumed: bool = False
    counted: int = 0
    told: int = 0
    copy_first: bool = False

    @property
    def present(self) -> bool:
        """Whether an update is to wait for what may come of it, or something has."""
        may_come = self.expected or self.waits or self.phase is not Phase.DONE
        return self.in_batch or (self.awaited and may_come)
