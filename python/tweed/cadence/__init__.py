"""Stage: talk now, or keep going alone? One file per method; the contract is in `base`.

Beside the cadences: `turns` (whose turn it is of a model's fragments), `outer` (what becomes of a round's
mean movement), `moves` (how much may be withheld), `timers` and `server_policy` (the server's side of ordered
transmission).
"""

from __future__ import annotations

from tweed.cadence.base import (
    Action,
    Cadence,
    ContributionReceived,
    Decision,
    Event,
    IterationStarted,
    Joined,
    Ready,
    ServerStopped,
    StepDone,
    Stop,
)
from tweed.cadence.by_shards import ByShards
from tweed.cadence.deferred import Deferred
from tweed.cadence.event_triggered import EventTriggered
from tweed.cadence.every_step import EveryStep
from tweed.cadence.intermittent import Intermittent
from tweed.cadence.local_steps import LocalSteps
from tweed.cadence.moves import Moves
from tweed.cadence.ordered import Ordered
from tweed.cadence.outer import Nesterov, Outer
from tweed.cadence.server_policy import ServerDecision, ServerPolicy
from tweed.cadence.timers import Timer
from tweed.cadence.turns import Turns

__all__ = [
    "Action",
    "ByShards",
    "Cadence",
    "ContributionReceived",
    "Decision",
    "Deferred",
    "Event",
    "EventTriggered",
    "EveryStep",
    "Intermittent",
    "IterationStarted",
    "Joined",
    "LocalSteps",
    "Moves",
    "Nesterov",
    "Ordered",
    "Outer",
    "Ready",
    "ServerDecision",
    "ServerPolicy",
    "ServerStopped",
    "StepDone",
    "Stop",
    "Timer",
    "Turns",
]
