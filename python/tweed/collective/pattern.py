"""What a pattern is: the sends that make one collective, whatever the network, and what they cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tweed._core import Schedule, Send, Topology


class Shape(NamedTuple):
    """The cost of a pattern without its sends: all that the chooser looks at.

    Attributes:
      steps: how many steps follow each other.
      messages: how many messages the busiest rank sends, or receives, whichever is more; what one rank
        sends to another in one step is one message.
      volume: bytes that the busiest rank sends, or receives, as a multiple of the whole buffer.
      fan_in: how many ranks at most send to one rank in one step.

    Example:
      >>> find("all_reduce", "exchange").patterns["all_reduce"].shape(8)
      Shape(steps=1, messages=7, volume=7.0, fan_in=7)
    """

    steps: int
    messages: int
    volume: float
    fan_in: int


class Message(NamedTuple):
    """What one rank sends to another in one step, as a fraction of the buffer."""

    step: int
    src: int
    dst: int
    volume: float


@dataclass(frozen=True, slots=True)
class Pattern:
    """The sends that make one collective between a number of ranks; call it with the number to get them.

    Attributes:
      name: of the family, such as `ring`.
      collective: what it makes, such as `all_reduce`; for rooted ones, for root 0.
      chunks: the number of chunks for a number of ranks.
      sends: the generator.
      shape: the cost for a number of ranks (at least 2); None keeps the chooser from picking it by itself.
      equal_parts: it works only where all parts are equally large, as ranks on the way hand on what is not
        theirs. The parts of an all_to_all need not be, so plans leave such a pattern out.

    Example:
      >>> len(list(find("all_reduce", "ring").patterns["all_reduce"](4)))
      24
    """

    name: str
    collective: str
    chunks: Callable[[int], int]
    sends: Callable[[int], Iterable[Send]]
    shape: Callable[[int], Shape] | None = None
    equal_parts: bool = False

    def __call__(self, ranks: int) -> Iterable[Send]:
        """The sends for `ranks` ranks."""
        return self.sends(ranks)

    def schedule(self, ranks: int) -> Schedule:
        """On a complete graph; raises ScheduleError if the pattern is wrong. Not cached: see `build`."""
        return schedule(self.name, self.collective, ranks, self.chunks(ranks), self.sends(ranks))


def pattern(
    name: str,
    collective: str,
    *,
    chunks: Callable[[int], int],
    shape: Callable[[int], Shape] | None = None,
    equal_parts: bool = False,
) -> Callable[[Callable[[int], Iterable[Send]]], Pattern]:
    """Makes a `Pattern` of a generator: `@pattern("ring", "all_reduce", chunks=per_rank, shape=...)`.

    Example:
      >>> @pattern("by hand", "gather", chunks=lambda ranks: ranks)
      ... def by_hand(ranks):
      ...     yield from (Send(0, rank, 0, rank, False) for rank in range(1, ranks))
      >>> len(list(by_hand(4)))
      3
    """

    def made(sends: Callable[[int], Iterable[Send]]) -> Pattern:
        return Pattern(name, collective, chunks, sends, shape, equal_parts)

    return made


def schedule(
    name: str,
    collective: str,
    ranks: int,
    chunks: int,
    sends: Iterable[Send],
    *,
    root: int = 0,
    topology: Topology | None = None,
) -> Schedule:
    """Checks sends and freezes them.

    Args:
      name: for people.
      collective: what the sends are to do, such as `all_reduce`.
      ranks: how many ranks take part.
      chunks: into how many parts the buffer is cut. Any number for all_reduce, broadcast and reduce; a
        multiple of `ranks` where each rank owns a part (`chunk // (chunks // ranks)` is the owner of
        `chunk`); of `ranks ** 2` for all_to_all (pairs of source and destination, source first).
      sends: any iterable, in any order; a generator is what one writes by hand.
      root: of rooted collectives.
      topology: the links there are; None means one between every two ranks.

    Raises:
      ScheduleError: the sends do not do it; names step, link, rank and chunk.

    Cost: about 1 us for each send, checking included.

    Example:
      >>> len(schedule("by hand", "broadcast", 2, 1, [Send(0, 0, 1, 0, False)]))
      1
    """
    return Schedule(name, collective, ranks, chunks, sends, root=root, topology=topology)


def in_order(sends: Iterable[Send]) -> list[Send]:
    """Orders the same sends by step, each waiting until the one before it over its first link has gone onto
    it.

    So a rank sends over each link in the order of the steps, where it would else send what is ready first and
    might hold up what others wait for. Trees have it by `trees.Pipeline`'s `ordered`. What the sends waited
    for before is dropped.
    """
    last: dict[tuple[int, int], int] = {}
    ordered = list[Send]()
    for place, send in enumerate(sorted(sends, key=lambda send: send.step)):
        link = send.src, send.route[0] if send.route else send.dst
        after = [last[link]] if link in last else []
        last[link] = place
        ordered.append(Send(send.step, send.src, send.dst, send.chunk, send.reduce, send.route, after))
    return ordered


def one(ranks: int) -> int:
    """The buffer in one piece."""
    return 1


def two(ranks: int) -> int:
    """The buffer in two halves."""
    return 2


def per_rank(ranks: int) -> int:
    """One chunk for each rank."""
    return ranks


def per_pair(ranks: int) -> int:
    """One chunk for each pair of ranks, source first."""
    return ranks * ranks


def levels(ranks: int) -> int:
    """The levels of a binary tree, or the halvings down to single ranks: `ceil(log2(ranks))`."""
    return (ranks - 1).bit_length()


def others(ranks: int, *excluded: int) -> Iterator[int]:
    """Every rank but those."""
    return (rank for rank in range(ranks) if rank not in excluded)


def shape_of(messages: Iterable[Message]) -> Shape:
    """Counts a shape, where there is no formula; of one message at least, one per pair of ranks and step."""
    steps: set[int] = set()
    counts: defaultdict[tuple[str, int], int] = defaultdict(int)
    volumes: defaultdict[tuple[str, int], float] = defaultdict(float)
    arrivals: defaultdict[tuple[int, int], int] = defaultdict(int)
    for step, src, dst, volume in messages:
        steps.add(step)
        arrivals[step, dst] += 1
        for end in (("out", src), ("in", dst)):
            counts[end] += 1
            volumes[end] += volume
    return Shape(len(steps), max(counts.values()), max(volumes.values()), max(arrivals.values()))
