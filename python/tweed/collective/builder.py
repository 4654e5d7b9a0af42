"""What a builder is: it makes the schedules of a family, such as rings, for the networks that it can use.

Some look at links, grids or places (`topology_aware`). Others are patterns, which any network can have: each
send takes a shortest path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

from tweed._core import Schedule, Send, Topology
from tweed.collective.pattern import Pattern, schedule
from tweed.collective.topology.base import shortest_paths
from tweed.collective.topology.check import check
from tweed.errors import UsageError

Order = Callable[[Topology], Sequence[int]]
"""Which rank of a network takes the place of each rank of a pattern."""


def anywhere(topology: Topology) -> str:
    """Refuses no network."""
    return ""


def over_links(topology: Topology) -> str:
    """Refuses flat networks, which have no links of their own."""
    return "it sends over links, and all ranks share one core" if topology.is_complete else ""


@dataclass(frozen=True, slots=True)
class Builder:
    """A family of schedules; the table has which collectives it makes.

    Attributes:
      name: of the family, such as `multitree`.
      make: `make(collective, topology, pieces)` builds and checks; it is only called where `refuses` is "".
      refuses: why it has no schedule for a topology, in words that name what it needs; "" if it has one.
      pieces: into how many pieces its shares of the buffer are worth cutting; few for short messages, many
        so that long ones flow. Those that a planner tries.
      patterns: what it makes by patterns, by collective.

    Example:
      >>> find("all_reduce", "ring").pieces
      (1,)
    """

    name: str
    make: Callable[[str, Topology, int], Schedule]
    refuses: Callable[[Topology], str] = anywhere
    pieces: tuple[int, ...] = (1,)
    patterns: Mapping[str, Pattern] = field(default_factory=dict, hash=False)

    def schedule(self, collective: str, network: Topology | int, pieces: int = 1) -> Schedule:
        """Builds and checks; not cached. Arguments and errors are those of `build`."""
        if isinstance(network, int):
            if collective not in self.patterns:
                raise UsageError(
                    f"builder '{self.name}' needs a network whose links are known: `tweed plan` plans for one"
                )
            return self.patterns[collective].schedule(network)
        check(network)
        if why := self.refuses(network):
            raise UsageError(f"builder '{self.name}' has no schedule for {network!r}: {why}")
        return self.make(collective, network, pieces)


def as_numbered(topology: Topology) -> Sequence[int]:
    """Every rank takes its own place."""
    return range(topology.ranks)


def of_patterns(*patterns: Pattern, order: Order = as_numbered) -> Builder:
    """The builder of a family of patterns, all of the same name; it has a schedule for every network."""
    by_collective = {one.collective: one for one in patterns}

    def make(collective: str, topology: Topology, pieces: int) -> Schedule:
        return routed(by_collective[collective], topology, order)

    return Builder(patterns[0].name, make, patterns=by_collective)


def routed(pattern: Pattern, topology: Topology, order: Order = as_numbered, name: str = "") -> Schedule:
    """A pattern's schedule over the links of a network.

    Args:
      pattern: its chunks are one per rank, or have no owners.
      topology: the links.
      order: where each rank of the pattern is. Its chunks move with it.
      name: of the schedule; "" is the pattern's.

    Raises: UsageError if no path leads from one rank to another.
    """
    at = order(topology)
    chunks = pattern.chunks(topology.ranks)
    owned = at if chunks == topology.ranks else range(chunks)
    route = cache(partial(_route, topology))

    def over(send: Send) -> Send:
        src, dst = at[send.src], at[send.dst]
        return Send(send.step, src, dst, owned[send.chunk], send.reduce, route(src, dst), send.after)

    sends = map(over, pattern(topology.ranks))
    return schedule(
        name or pattern.name, pattern.collective, topology.ranks, chunks, sends, topology=topology
    )


def _route(topology: Topology, src: int, dst: int) -> list[int]:
    if topology.has_link(src, dst):
        return []
    path = shortest_paths(topology, src).get(dst)
    if path is None:
        raise UsageError(f"no way leads from rank {src} to rank {dst}: add the links that are missing")
    return list(path)
