"""Parts of a network between which links are scarce: single ranks, places, and what slow links hold together.

Any division of a network into parts bounds a collective, by what must cross from part to part
(`bounds`). There are too many to try all; these are where networks are narrow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from tweed._core import Topology
from tweed.collective.topology.base import neighbours

Parts = tuple[frozenset[int], ...]
"""Disjoint sets of nodes, each with a rank; every rank is in one, a switch may be in none."""

_MOST = 32  # so many speeds of slow links are tried


def partitions(topology: Topology) -> Iterator[Parts]:
    """Divisions into two parts or more: each rank alone, sites, racks, hosts, and without the slowest links.

    Switches belong to the place to whose ranks they are nearest, and to none where two are as near.

    Cost: a pass over the links for each place's depth and each speed of a link, of which 32 are tried.
    """
    found: dict[Parts, None] = {tuple(frozenset([rank]) for rank in range(topology.ranks)): None}
    if not topology.is_complete:
        found |= dict.fromkeys(_places(topology)) | dict.fromkeys(islice(_without_slow(topology), _MOST))
    return (parts for parts in found if len(parts) > 1)


def _places(topology: Topology) -> Iterator[Parts]:
    near = neighbours(topology)
    for depth in range(1, len(topology.places[0]) + 1 if topology.places else 0):
        where = {rank: tuple(place[:depth]) for rank, place in enumerate(topology.places)}
        names = sorted(set(where.values()))
        yield _parts(topology, _nearest({rank: names.index(at) for rank, at in where.items()}, near))


def _nearest(part_of: Mapping[int, int], near: Mapping[int, set[int]]) -> dict[int, int]:
    """Switches too; -1 where two parts are as near."""
    found, front = dict(part_of), set(part_of)
    while front:
        reached = {after for node in front for after in near[node]} - found.keys()
        around = {node: {found[there] for there in near[node] & front} for node in reached}
        found |= {node: parts.pop() if len(parts) == 1 else -1 for node, parts in around.items()}
        front = reached
    return found


def _without_slow(topology: Topology) -> Iterator[Parts]:
    """What hangs together when the slowest links are gone, then those that are slowest now, and so on."""
    speeds: defaultdict[frozenset[int], int] = defaultdict(int)
    for a, b, bandwidth, _, count in topology.links:
        speeds[frozenset((a, b))] += bandwidth * count
    for slow in sorted(set(speeds.values())):
        yield _parts(topology, _joined(topology, (pair for pair, speed in speeds.items() if speed > slow)))


def _joined(topology: Topology, pairs: Iterable[frozenset[int]]) -> dict[int, int]:
    """The lowest node that each node hangs together with."""
    lowest = list(range(topology.nodes))

    def root(node: int) -> int:
        while lowest[node] != node:
            lowest[node] = node = lowest[lowest[node]]
        return node

    for a, b in map(sorted, pairs):
        one, other = sorted((root(a), root(b)))
        lowest[other] = one
    return {node: root(node) for node in range(topology.nodes)}


def _parts(topology: Topology, part_of: Mapping[int, int]) -> Parts:
    """The parts that have a rank, by their lowest rank."""
    inside: defaultdict[int, set[int]] = defaultdict(set)
    for node, part in part_of.items():
        inside[part].add(node)
    ours = [frozenset(part) for name, part in inside.items() if name >= 0 and min(part) < topology.ranks]
    return tuple(sorted(ours, key=min))
