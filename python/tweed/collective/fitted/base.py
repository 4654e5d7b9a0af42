"""What a builder for a network is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tweed._core import Schedule, Topology
from tweed.collective.topology.check import check
from tweed.errors import UsageError


@dataclass(frozen=True, slots=True)
class Fitted:
    """One way to make collectives on a given network.

    Attributes:
      name: of the family, such as `multitree`.
      collectives: what it makes, such as `all_reduce`.
      make: `make(collective, topology, pieces)` builds and checks; it is only called where `refuses` says "".
      refuses: why it has no schedule for a topology, in words that say what it needs; "" if it has one.
      pieces: into how many pieces its shares of the buffer are worth cutting; few for short messages, many
        so that long ones flow. Those that a planner tries.
    """

    name: str
    collectives: tuple[str, ...]
    make: Callable[[str, Topology, int], Schedule]
    refuses: Callable[[Topology], str]
    pieces: tuple[int, ...] = (1,)

    def schedule(self, collective: str, topology: Topology, pieces: int = 1) -> Schedule:
        """Builds and checks. Not cached: see `fit`.

        Raises:
          UsageError: the network is none that collectives can run on (see `topology.check`), or the builder
            does not make this collective, or not there; says what to change or what it needs.
          ScheduleError: the builder is wrong.
        """
        check(topology)
        if collective not in self.collectives:
            raise UsageError(f"builder '{self.name}' makes {', '.join(self.collectives)}, not {collective}")
        if why := self.refuses(topology):
            raise UsageError(f"builder '{self.name}' has no schedule for {topology!r}: {why}")
        return self.make(collective, topology, pieces)


def anywhere(topology: Topology) -> str:
    """Refuses no network."""
    return ""


def over_links(topology: Topology) -> str:
    """Refuses flat networks, which have no links of their own."""
    return "it sends over links, and all ranks share one core" if topology.is_complete else ""
