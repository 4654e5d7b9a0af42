"""Stage: talk now, or keep going alone? One file per method; the contract is in `base`."""

from __future__ import annotations

from tweed.cadence.base import Cadence, Decision, Event, StepDone, Stop
from tweed.cadence.every_step import EveryStep
from tweed.cadence.local_steps import LocalSteps

__all__ = ["Cadence", "Decision", "Event", "EveryStep", "LocalSteps", "StepDone", "Stop"]
