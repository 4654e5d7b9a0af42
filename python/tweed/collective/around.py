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

_MOST_STEPS = 2
_LEAST_AHEAD = 512 << 10
_THREADS_S = 5e-3
"""What is in, is summed, and is out again: of two steps; in bytes, and what threads may take meanwhile."""

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

    Of those that take as long it is the one of the fewest steps: at each, ranks wait for each other.

    Args:
      topology: between ranks, without switches; see `network`.
      links: what each of its links does, with the ports of a rank shared among its links.

    Returns: nothing if no quick builder has such a schedule, or if the collective cannot do without a link.

    Cost: some milliseconds for 8 ranks, the first time in a process.
    """
    if collective not in _FOLLOWS or not (found := sorted(_direct(collective, topology), key=_steps)):
        return []

    def choice(size: int) -> Choice:
        timed = [
            Timed(seconds(shape, chunks, size, links), name, pieces) for name, pieces, chunks, shape in found
        ]
        return quickest(collective, size, topology.ranks, timed, Reason.AROUND, ALIKE)

    return [(size, choice(size)) for size in sizes]


def _steps(built: tuple[str, int, int, Shape]) -> int:
    return built[-1].steps


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


def ahead(schedule: Schedule, topology: Topology) -> int | None:
    """How many bytes of a chunk a sender may have under way where others' are summed with its; None: any.

    Who sums can hand on as much as the slowest of them has sent. What another one is ahead by has taken the
    time of the port through which all come, and what leaves stands idle for as long. So each may fill that
    port alone, and be no further ahead. Two of 3 behind NAT, at 100 Mbit/s: an all-reduce of 25 MB took 1.10
    to 1.12 of the time that links need with 4 MiB under way, and 1.03 to 1.06 so.

    Returns: None where values are summed on their way, or a rank sums what one sends: there is none ahead.
    """
    steps = {send.step for send in schedule}
    senders = Counter((send.step, send.dst, send.chunk) for send in schedule if send.reduce)
    if len(steps) > _MOST_STEPS or max(senders.values(), default=0) < 2:
        return None
    _, _, bandwidth, latency_s, _ = max(topology.links, key=lambda link: link[2] * link[3])
    return _LEAST_AHEAD + round(bandwidth * (2 * latency_s + _THREADS_S))


def is_direct(schedule: Schedule) -> bool:
    """Each send goes over one link, from its rank to the other one."""
    return not any(send.route for send in schedule)


def _shape(schedule: Schedule) -> Shape:
    each = 1 / schedule.chunks
    return shape_of(Message(send.step, send.src, send.dst, each) for send in schedule)
