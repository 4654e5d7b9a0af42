"""Schedules for ranks of which some cannot send to each other: none of their sends needs what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache

from tweed._core import Schedule, Topology
from tweed.collective.chooser import ALIKE, Choice, Links, Reason, Timed, fitting, quickest, seconds
from tweed.collective.pattern import Message, Shape, shape_of
from tweed.collective.table import build
from tweed.errors import TweedError

Pair = tuple[int, int]

_QUICK = ("ring", "halving_doubling", "double_binary_tree", "multitree", "star", "binomial_tree", "pairwise")
"""Builders whose schedules are there in milliseconds, for networks that change while a run goes on."""

_LEAST_IN_FLIGHT = 256 << 10
"""Bytes. With 512 KiB packets were lost at 100 Mbit/s, as two senders filled a queue of 50 ms."""

_THREADS_S = 5e-3
"""What threads of three processes may take with a piece while other work is on their processors."""

_FOLLOWS = ("all_reduce", "reduce_scatter", "all_gather")
"""What can do without a link: the root of the others may be any rank, and an all-to-all needs every pair."""


def network(ranks: int, links: Links, missing: Collection[Pair]) -> Topology:
    """A link from every rank to every other one, but between these pairs, whichever comes first.

    Example:
      >>> [link[:2] for link in network(3, Links(1e-3, 1e6), [(2, 1)]).links]
      [(0, 1), (0, 2), (1, 0), (2, 0)]
    """
    gone = {frozenset(pair) for pair in missing}
    pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b and {a, b} not in gone]
    return Topology(ranks, [(a, b, round(links.bandwidth), links.latency_s, 1) for a, b in pairs])


def choices(
    collective: str, sizes: Sequence[int], topology: Topology, links: Links
) -> list[tuple[int, Choice]]:
    """For each size in bytes, the builder of the quickest schedule that sends over these links alone.

    Of those that take as long it is the ring, or the one of the fewest steps: at each, ranks wait for others.

    Args:
      topology: between ranks, without switches; see `network`.
      links: what each of its links does, with the ports of a rank shared among its links.

    Returns: nothing if no quick builder has such a schedule, or if the collective cannot do without a link.

    Cost: some milliseconds for 8 ranks, the first time in a process.
    """
    if collective not in _FOLLOWS or not (found := sorted(_direct(collective, topology), key=_order)):
        return []

    def choice(size: int) -> Choice:
        timed = [
            Timed(seconds(shape, chunks, size, links), name, pieces) for name, pieces, chunks, shape in found
        ]
        return quickest(collective, size, topology.ranks, timed, Reason.AROUND, ALIKE)

    return [(size, choice(size)) for size in sizes]


def _order(built: tuple[str, int, int, Shape]) -> tuple[bool, int]:
    """The ring first, in which nobody has several senders, whose streams take room from each other."""
    name, *_, shape = built
    return name != "ring", shape.steps


@lru_cache(maxsize=64)
def _direct(collective: str, topology: Topology) -> tuple[tuple[str, int, int, Shape], ...]:
    """Builder, pieces, chunks and cost of each schedule without a send between two that have no link."""
    return tuple(_built(collective, topology))


def _built(collective: str, topology: Topology) -> Iterator[tuple[str, int, int, Shape]]:
    for row in fitting(collective, topology):
        if row.name not in _QUICK:
            continue
        try:
            schedule = build(collective, row.name, topology, row.pieces[0])
        except TweedError:  # this one cannot; others may
            continue
        if is_direct(schedule):
            yield row.name, row.pieces[0], schedule.chunks, _shape(schedule)


def in_flight_bytes(schedule: Schedule, links: Links) -> int | None:
    """How many bytes of a chunk are to be under way at most where several send to one; None: any number.

    Who sums can hand on as much as the slowest of them has sent. What another one is ahead by has taken the
    time of the port through which all come, and what leaves stands idle for as long. So each may fill that
    port alone, and be no further ahead ([decision 56](docs/decisions/0056-nobody-far-ahead.md)).

    Returns: None but for schedules of two steps in which a rank sums what several send and hands it on. In
      trees a value is under way over several links at once.
    """
    steps = {send.step for send in schedule}
    sums = Counter((send.dst, send.chunk) for send in schedule if send.reduce and send.step == min(steps))
    leaves = {(send.src, send.chunk) for send in schedule if send.step == max(steps)}
    if len(steps) != 2 or not any(count > 1 and at in leaves for at, count in sums.items()):
        return None
    return _LEAST_IN_FLIGHT + round(links.bandwidth * (2 * links.latency_s + _THREADS_S))


def is_direct(schedule: Schedule) -> bool:
    """Each send goes over one link, from its rank to the other one."""
    return not any(send.route for send in schedule)


def _shape(schedule: Schedule) -> Shape:
    each = 1 / schedule.chunks
    return shape_of(Message(send.step, send.src, send.dst, each) for send in schedule)
