"""What a process can tell of its job besides its links: what it is called, and how far training is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Protocol

from tweed.metrics.snapshot import Training


class Counts(Protocol):
    """What `tweed.Stats` has. It is only read, from another thread."""

    steps: int
    exchanges: int
    bytes_exchanged: int
    waiting_s: float


_name: str | None = None
_counts: Counts | None = None


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


def training() -> Training | None:
    """How far training is; None where nobody counts."""
    if _counts is None:
        return None
    return Training(_counts.steps, _counts.exchanges, _counts.bytes_exchanged, _counts.waiting_s)
