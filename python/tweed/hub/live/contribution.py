"""What `run.contributions` is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Contribution:
    """What became of one at a commit.

    Attributes:
      member: whose.
      number: of its task.
      delay: commits between the model that it was computed on and this one.
      weight: with which it counted; 0: it was not believed. None: the rule says nothing.
      reason: why, in words.
      score: what the rule went by, see `Verdict`; None: it goes by no such value.
    """

    member: int
    number: int
    delay: int
    weight: float | None
    reason: str
    score: float | None = None
