"""Computers that pause and slow down, and links that others take a part of: disturbances as values.

    COMPUTERS["C3"].steps(seed, 30, member=4, task=17, now=61.0)    # so many undisturbed steps
    NETWORKS["N-dynamic"].share(seed, 4, now=61.0)    # of its rate that host 4 has, and until when

Whoever asks gives the time, so nothing here has a state.

Source: the names are those of MLfabric (arXiv 1907.00434, 2019). Its parameters are in no material that was
at hand: these are ours, after the disturbances that its first author published in 2017 (pauses between the
passes, computers and links under load).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from tweed.errors import UsageError
from tweed.rng import uniform


@dataclass(frozen=True, slots=True)
class Computers:
    """How long a step takes on members' computers.

    Args:
      pauses: of each step, in its own lengths; each is drawn evenly from 0 to that many.
      slow: the share of members whose steps, pauses among them, take `factor` times as long.
      redrawn_s: after so long others are slow; infinite: never.

    Raises: UsageError for a share or times that cannot be.

    Example:
      >>> Computers(slow=0.5, factor=3.0).steps(0, 1, member=0, task=1, now=0.0)
      1.0
    """

    pauses: tuple[float, ...] = ()
    slow: float = 0.0
    factor: float = 1.0
    redrawn_s: float = math.inf

    def __post_init__(self) -> None:
        if not (
            0 <= self.slow <= 1 and self.factor >= 1 and self.redrawn_s > 0 and min((0, *self.pauses)) >= 0
        ):
            raise UsageError(
                f"{self!r}: slow is to be a share, factor at least 1, redrawn_s above 0, and no pause below 0"
            )

    def steps(self, seed: int, members: int, member: int, task: int, now: float) -> float:
        """How long `member`, one of so many, takes for a task that begins now, in undisturbed steps."""
        pauses = sum(most * uniform(seed, 1, place, member, task) for place, most in enumerate(self.pauses))
        epoch = int(now // self.redrawn_s)
        slow = member in _slow(seed, epoch, members, int(self.slow * members))
        return (1.0 + pauses) * (self.factor if slow else 1.0)


@lru_cache(maxsize=64)
def _slow(seed: int, epoch: int, members: int, count: int) -> frozenset[int]:
    return frozenset(sorted(range(members), key=lambda member: uniform(seed, 2, epoch, member))[:count])


@dataclass(frozen=True, slots=True)
class Load:
    """Which share of its link's rate each host has, the rest being others'.

    Args:
      shares: of the rate, each with the probability that a host has it.
      redrawn_s: after so long all are drawn again; infinite: never.
      hub: whether the hub's host, a number below 0, is drawn too; else all of its link is its own.

    Raises: UsageError if the probabilities do not add up to 1, or a share is none.

    Example:
      >>> Load(((0.5, 1.0),), redrawn_s=5.0).share(0, 3, now=7.0)
      (0.5, 10.0)
    """

    shares: tuple[tuple[float, float], ...] = ((1.0, 1.0),)
    redrawn_s: float = math.inf
    hub: bool = True

    def __post_init__(self) -> None:
        total = sum(probability for _, probability in self.shares)
        if (
            abs(total - 1) > 1e-9
            or not all(0 < share <= 1 for share, _ in self.shares)
            or not self.redrawn_s > 0
        ):
            raise UsageError(f"{self!r}: shares are to be above 0, and their probabilities to add up to 1")

    def share(self, seed: int, host: int, now: float) -> tuple[float, float]:
        """The share that `host` has now, and until when."""
        epoch = int(now // self.redrawn_s)
        epoch += (epoch + 1) * self.redrawn_s <= now  # a quotient may be rounded down
        until = (epoch + 1) * self.redrawn_s
        if host < 0 and not self.hub:
            return 1.0, math.inf
        drawn = uniform(seed, 3, epoch, host)
        for share, probability in self.shares:
            drawn -= probability
            if drawn < 0:
                return share, until
        return self.shares[-1][0], until  # what rounding leaves of 1


#: From alike to uneven.
COMPUTERS: Mapping[str, Computers] = {
    "C1": Computers((0.1,)),
    "C2": Computers((0.1,), slow=0.2, factor=2.0),
    "C3": Computers((0.1, 1.0), slow=0.1, factor=4.0, redrawn_s=60.0),
}
#: Load that stays, and load that comes and goes.
NETWORKS: Mapping[str, Load] = {
    "N-static": Load(((1.0, 0.7), (0.4, 0.3)), hub=False),
    "N-dynamic": Load(((1.0, 0.5), (0.5, 0.3), (0.25, 0.2)), redrawn_s=5.0),
}
