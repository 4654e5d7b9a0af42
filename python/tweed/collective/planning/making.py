"""`make`: from a network to a plan, with the figures behind it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import chain, pairwise

from tweed._core import Topology
from tweed.collective.chooser import Links
from tweed.collective.planning.candidates import ROOTLESS, candidates
from tweed.collective.planning.plans import Pick, Plan, plan, rows
from tweed.collective.planning.predict import USUAL, Host
from tweed.collective.planning.table import Table
from tweed.collective.table import COLLECTIVES
from tweed.collective.topology.check import check
from tweed.errors import UsageError

SIZES = tuple(1 << bits for bits in range(10, 29, 2))
"""Sizes that are predicted if nobody asks for others: 1 KiB to 256 MiB, each four times the one before."""


_CLOSE = 1.25
"""Builders within so many times the best are in question between two sizes, too."""


@dataclass(frozen=True)
class Planned:
    """A plan, and the tables that it was picked from, by collective."""

    plan: Plan
    tables: Mapping[str, Table]


def make(
    topology: Topology,
    collectives: Sequence[str] = ROOTLESS,
    sizes: Sequence[int] = SIZES,
    host: Host = USUAL,
    builders: Collection[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Planned:
    """Tries every builder on `topology` and picks the quickest by size.

    Args:
      topology: the network.
      collectives: which are to be predicted; for the others the plan has patterns, by the formula of
        `collective.plan`.
      sizes: whole buffers in bytes. Where the pick changes between two of them, it changes halfway.
      host: what ranks take their own time for.
      builders: those to try; empty: all.
      progress: called with what is being done.

    Raises:
      UsageError: no such collective, no sizes, or a network on which nothing can run.

    Cost: docs/plan.md; about a second for 16 ranks, a minute for 64.

    Example:
      >>> planned = make(topology.ring(4), ["all_reduce"], [1 << 20], builders=["ring", "multitree"])
      >>> planned.plan.ranks
      4
    """
    check(topology)
    for name in set(collectives) - set(COLLECTIVES):
        raise UsageError(f"there is no collective '{name}'; use one of {', '.join(COLLECTIVES)}")
    if not sizes or min(sizes) < 1:
        raise UsageError("give at least one size, of at least 1 byte")
    ordered = sorted(set(sizes))
    tables = {}
    for name in collectives:
        tables[name] = Table(name, topology, *candidates(name, topology, builders, progress), host)
        _fill(tables[name], ordered, progress)
    flat = plan(topology.ranks, worst(topology)).picks
    picks = {name: [pick for pick in flat if pick.collective == name] for name in COLLECTIVES}
    picks |= {name: list(_picks(table)) for name, table in tables.items()}
    return Planned(Plan(topology.ranks, tuple(chain(*picks.values())), topology), tables)


def _fill(table: Table, sizes: Sequence[int], progress: Callable[[str], None]) -> None:
    for numbytes in sizes:
        progress(f"{table.collective}: {len(table.candidates)} schedules, {numbytes} bytes")
        table.predict(numbytes)
    for small, large in pairwise(sizes):
        _halve(table, small, large)


def _halve(table: Table, small: int, large: int) -> None:
    """Where the pick changes between two sizes, predicts those in question at the size halfway."""
    ends = [table.choose(size) for size in (small, large)]
    middle = round((small * large) ** 0.5)
    if len({(end.builder, end.pieces) for end in ends}) > 1 and small < middle < large:
        table.predict(middle, _in_question(table, small) | _in_question(table, large))


def _in_question(table: Table, numbytes: int) -> set[int]:
    """The places of those that are not far from the best at a size."""
    column = table.times[numbytes]
    best = min(time.seconds for time in column if time.exact)
    return {place for place, time in enumerate(column) if time.exact and time.seconds <= _CLOSE * best}


def _picks(table: Table) -> Iterator[Pick]:
    verdicts = [table.verdict(size) for size in sorted(table.times)]
    choices = [(one.numbytes, replace(one.choice, detail=one.reason)) for one in verdicts]
    return rows(choices, table.topology)


def worst(topology: Topology) -> Links:
    """A network as the formula takes it: its slowest link, and the path from rank 0 to the farthest."""
    slowest = min(bandwidth * count for _, _, bandwidth, _, count in topology.links)
    return Links(latency_s=_farthest(topology), bandwidth=slowest)


def _farthest(topology: Topology) -> float:
    out = defaultdict(list)
    for src, dst, _, latency_s, _ in topology.links:
        out[src].append((dst, latency_s))
    reached: dict[int, float] = {}
    waiting = [(0.0, 0)]
    while waiting:
        at, node = heappop(waiting)
        if node not in reached:
            reached[node] = at
            for after, latency_s in out[node]:
                heappush(waiting, (at + latency_s, after))
    return max(reached.values())
