"""How many contributions may be anything."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import ClassVar

from tweed.errors import UsageError


@dataclass(frozen=True, slots=True)
class Bounded:
    """A rule that is told how many contributions may be anything.

    Args:
      f: a number, or a share of those that arrive, rounded down; less than half of them.
    """

    f: int | float = 0.25
    most: ClassVar[float] = 0.5  # as a share

    def __post_init__(self) -> None:
        if not ((_is_whole(self.f) and self.f >= 0) or (_is_real(self.f) and 0 <= self.f < self.most)):
            raise UsageError(f"{self!r}: f is to be a whole number from 0 on, or a share below {self.most:g}")

    def byzantine(self, count: int) -> int:
        """`f` of `count` contributions."""
        if _is_whole(self.f):
            return int(self.f)
        # 0.29 of 100 are 29, though their product as floats is a little less.
        return math.floor(self.f * count + 1e-9)

    def least(self, byzantine: int) -> int:
        """How many contributions it needs where `byzantine` may be anything."""
        return 2 * byzantine + 1

    def require(self, contributors: int) -> None:
        """Raises UsageError if there are too few contributions for those that may be anything."""
        least = self.least(self.byzantine(contributors))
        if contributors < least:
            raise UsageError(f"{self!r} needs at least {least} contributions, and there are {contributors}")


def _is_whole(f: object) -> bool:
    """Python's whole numbers, and numpy's."""
    return isinstance(f, Integral) and not isinstance(f, bool)


def _is_real(f: object) -> bool:
    return isinstance(f, Real) and not isinstance(f, Integral)
