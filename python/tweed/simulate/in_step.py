"""How long synchronous steps take on disturbed computers and links: all compute, then a collective.

    steps = InStep(COMPUTERS["C3"], NETWORKS["N-dynamic"], members=30, transfer_s=0.02, seed=1)
    taken = steps.take(0, now=0.0)
    taken.ends_s, taken.members

A collective is run by the executor that runs live, over hosts behind one switch, with the rates that they
have. Where rates change under way, what is left of it goes on in proportion to how long all of it would take
at the new ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tweed.collective import Topology, build
from tweed.collective.runs import run
from tweed.errors import UsageError
from tweed.simulate.disturbances import Computers, Load

_BYTES = 10**9  # of the run that is timed: times are in proportion, as nothing has a latency
_PIECES = 100  # so many pieces of a whole buffer flow behind each other


@dataclass(frozen=True, slots=True)
class Taken:
    """A step: when it ended, and whose contributions it is made of."""

    ends_s: float
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class InStep:
    """See above.

    Args:
      computers, load: the disturbances.
      members: how many there are.
      transfer_s: how long all bytes take over a link at its full rate.
      seed: of the disturbances.
      builder: of the all-reduce.
      spare: so many members, the last to be ready, are not waited for; what they have is thrown away.
      step_s: how long an undisturbed step takes.

    Raises: UsageError if fewer than two members are waited for.
    Cost: some milliseconds whenever rates have changed.
    """

    computers: Computers
    load: Load
    members: int
    transfer_s: float
    seed: int
    builder: str = "ring"
    spare: int = 0
    step_s: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.spare <= self.members - 2:
            raise UsageError(f"{self!r}: spare is to leave two members at least")

    def take(self, step: int, now: float) -> Taken:
        """A step that begins now."""
        ready = sorted(
            (self.step_s * self.computers.steps(self.seed, self.members, member, step, now), member)
            for member in range(self.members)
        )[: self.members - self.spare]
        members = tuple(sorted(member for _, member in ready))
        return Taken(self._moved_s(members, now + ready[-1][0]), members)

    def _moved_s(self, members: tuple[int, ...], now: float) -> float:
        """When a collective that begins now has ended."""
        left = 1.0
        while True:
            shares, untils = zip(
                *(self.load.share(self.seed, member, now) for member in members), strict=True
            )
            whole_s = self.transfer_s * _transfers(self.builder, shares)
            if now + left * whole_s <= min(untils):
                return now + left * whole_s
            left -= (min(untils) - now) / whole_s
            now = min(untils)


@lru_cache(maxsize=4096)
def _transfers(builder: str, shares: tuple[float, ...]) -> float:
    """How long an all-reduce takes, in times that its bytes take over one link at its full rate."""
    schedule = build("all_reduce", builder, _hosts((1.0,) * len(shares)))
    seconds = run(schedule, _BYTES, _hosts(shares), piece=_BYTES // _PIECES).seconds
    assert seconds is not None  # nobody dies
    return seconds


def _hosts(shares: tuple[float, ...]) -> Topology:
    """Hosts behind one switch, each with its share of a link that moves `_BYTES` in a second."""
    count = len(shares)
    rates = [round(share * _BYTES) for share in shares]
    up = [(host, count, rate, 0.0, 1) for host, rate in enumerate(rates)]
    down = [(count, host, rate, 0.0, 1) for host, rate in enumerate(rates)]
    return Topology(count, up + down, f"{count} hosts")
