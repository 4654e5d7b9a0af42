"""Published systems: the paper, the parts it is made of here, and the experiment that checks its claim.

base      what a system is, and the notes of an experiment
race      how long steps take: sides in turns over one network
runner    the ranks' part of that
school    what is learned: whole trainings over seeds
sections  parts of a report that many experiments have
contest   real trainings of several sides, and laps in turns

A new system is a file with a `SYSTEM`, and a row here. What it needs and is missing becomes a part of a
stage.
"""

from __future__ import annotations

import importlib

from tweed.errors import UsageError
from tweed.systems.base import Notes, System

__all__ = ["SYSTEMS", "Notes", "System", "system"]

#: Name and one line about it.
SYSTEMS = {
    "compression": "compressors, memories and cadences beside DDP on slow links",
    "cser": "what is not said is applied at once, alone, and averaged later",
    "dct": "a threshold tells which numbers are said, and lives for many steps",
    "ltp": "a loss-tolerant transport: gradients do not wait for the last packet",
    "multitree": "trees grown together so that no two want a link at once, and what came after them",
    "ofedqit": "online federated learning with quantised messages that few clients send",
    "ordered_gradient": "only the most informative workers talk, in the order of how much they have to say",
    "saef": "gradients are taken where the rest would lead, had it been said",
}


def system(name: str) -> System:
    """The system called `name`. Raises: UsageError if there is none; lists those that there are."""
    if name not in SYSTEMS:
        raise UsageError(f"there is no system {name!r}; there are {', '.join(SYSTEMS)}")
    found: System = importlib.import_module(f"tweed.systems.{name}").SYSTEM
    return found
