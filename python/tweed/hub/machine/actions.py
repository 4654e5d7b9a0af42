"""What a hub wants done, one after the other, by whoever drives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tweed.aggregate import Question, Verdict
from tweed.hub.wire.messages import FromHub, Unit


@dataclass(frozen=True, slots=True)
class Tell:
    """Send `message` to `member`; with a `Task` goes the model."""

    member: int
    message: FromHub


@dataclass(frozen=True, slots=True)
class Step:
    """Commit: let the optimizer step by `update`, and the model is `version`.

    Attributes:
      contributions: of which it is made: member, and number of the task.
      verdicts: on each.
      units: as which they came, in order: for the log.
    """

    update: Any
    version: int
    contributions: tuple[tuple[int, int], ...]
    verdicts: tuple[Verdict, ...]
    units: tuple[Unit, ...] = ()


@dataclass(frozen=True, slots=True)
class Abandon:
    """Nothing comes of these contributions: there are too few for the rule, and nobody is left to add one.

    Attributes:
      why: in words.
    """

    contributions: tuple[tuple[int, int], ...]
    why: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Find out, and hand over with `answered`. Until then nothing is granted."""

    question: Question


@dataclass(frozen=True, slots=True)
class Distrust:
    """Tell people: what this member has added up cannot be the sum, and it is not asked again.

    Attributes:
      why: in words.
    """

    member: int
    why: str


Action = Tell | Step | Abandon | Ask | Distrust
