"""What a process can tell of its job besides its links: its name, how far training is, what its hub has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Protocol

from tweed.metrics.hub_snapshot import HubCounts
from tweed.metrics.snapshot import Training


class Counts(Protocol):
    """What `tweed.Stats` has. It is only read, from another thread."""

    steps: int
    exchanges: int
    bytes_exchanged: int
    waiting_s: float
    encoding_s: float


_name: str | None = None
_counts: Counts | None = None
_hub: Callable[[], HubCounts] | None = None


def call(name: str) -> None:
    """Gives the job of this process a name, for people."""
    global _name
    _name = name


def name() -> str:
    """The job's name; if nobody has given one, that of its program."""
    return _name or Path(sys.argv[0] or "python").name


def follow(counts: Counts) -> None:
    """From now on the process's metrics include these. The latest caller counts."""
    global _counts
    _counts = counts


def follow_hub(counts: Callable[[], HubCounts]) -> None:
    """From now on the process's metrics include what a hub has counted, which is asked from another thread.
    The latest caller counts."""
    global _hub
    _hub = counts


def leave_hub(counts: Callable[[], HubCounts]) -> None:
    """The hub with these is no more."""
    global _hub
    _hub = None if _hub == counts else _hub


def hub() -> HubCounts | None:
    """What the hub of this process has counted; None where there is none."""
    return None if _hub is None else _hub()


def training() -> Training | None:
    """How far training is; None where nobody counts."""
    if _counts is None:
        return None
    return Training(**{item.name: getattr(_counts, item.name) for item in fields(Training)})
