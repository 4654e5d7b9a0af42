"""What a builder is: it makes the schedules of a family, such as rings, for the networks that it can use.

Some look at links, grids or places (`topology_aware`). Others are patterns, which any network can have: each
send takes a shortest route, and of equally short ones the least loaded (`routes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tweed._core import Schedule, Send, Topology
from tweed.collective.pattern import Pattern, schedule
from tweed.collective.routes import Ends, spread
from tweed.collective.topology.check import check
from tweed.errors import UsageError

Order = Callable[[Topology], Sequence[int]]
"""Which rank of a network takes the place of each rank of a pattern."""


def anywhere(topology: Topology) -> str:
    """Refuses no network: the builder has a schedule for each."""
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


def of_patterns(*patterns: Pattern, order: Order = as_numbered, pieces: tuple[int, ...] = (1,)) -> Builder:
    """The builder of a family of patterns, all of the same name; it has a schedule for every network.

    Args:
      patterns: one for each collective.
      order: see `routed`.
      pieces: into how many pieces chunks are worth cutting on a network whose links are known.
    """
    by_collective = {one.collective: one for one in patterns}

    def make(collective: str, topology: Topology, pieces: int) -> Schedule:
        return routed(by_collective[collective], topology, order, pieces=pieces)

    return Builder(patterns[0].name, make, pieces=pieces, patterns=by_collective)


def routed(
    pattern: Pattern, topology: Topology, order: Order = as_numbered, name: str = "", pieces: int = 1
) -> Schedule:
    """A pattern's schedule over the links of a network.

    Args:
      pattern: its chunks are one per rank, or have no owners.
      topology: the links.
      order: where each rank of the pattern is. Its chunks move with it.
      name: of the schedule; "" is the pattern's.
      pieces: into how many pieces each chunk is cut; each follows the one before, a step behind.

    Raises: UsageError if no path leads from one rank to another.

    Cost: mostly that of the routes: see `routes.spread`.
    """
    at, chunks = order(topology), pattern.chunks(topology.ranks)
    owned = at if chunks == topology.ranks else range(chunks)
    once = list(pattern(topology.ranks))
    turns = [(piece, send) for piece in range(pieces) for send in once]
    ends = [Ends(send.step + piece, at[send.src], at[send.dst]) for piece, send in turns]
    routes = spread(topology, ends)

    def over(turn: tuple[int, Send], ends: Ends, route: list[int]) -> Send:
        piece, send = turn
        after = [piece * len(once) + before for before in send.after]
        return Send(*ends, owned[send.chunk] * pieces + piece, send.reduce, route, after)

    sends = map(over, turns, ends, routes)
    return schedule(
        name or pattern.name, pattern.collective, topology.ranks, chunks * pieces, sends, topology=topology
    )
