"""Hierarchy: inside a host, a rack, a site, and only then between them.

Places group the ranks: sites of racks of hosts. Of every group each chunk has one owner. A chunk's values are
summed at the owners of the smallest groups, their sums at the owners of the next larger ones, and so on; what
all have given goes back along the same trees. So each slow link is crossed once in each direction by a share
of the buffer, where a ring crosses it with nearly twice the buffer. Owners change from chunk to chunk, so
that the members of a group share its work, and a group's link out is used by several connections at once.

Where the outermost groups are two, their owners swap sums, and both add: one crossing, not two.

Source: the usual two-level all-reduce (Jia et al., "Highly Scalable Deep Learning Training System with
Mixed-Precision", 2018, section 3.3), for any number of levels and groups of any size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import lcm

from tweed._core import Schedule, Send, Topology
from tweed.collective.builder import Builder
from tweed.collective.pattern import schedule
from tweed.collective.routes import Ends, spread
from tweed.collective.topology_aware.trees import Edge, Tree, schedule_of

_MOST_CHUNKS_PER_RANK = 2


@dataclass(frozen=True)
class Group:
    """Ranks of one place, and the groups that they form in it; a single rank has none."""

    ranks: tuple[int, ...]
    parts: tuple[Group, ...] = ()

    def owner(self, chunk: int) -> int:
        """The rank that owns `chunk`: the members take turns."""
        return self.ranks[chunk % len(self.ranks)]

    @cached_property
    def height(self) -> int:
        """How many levels of groups there are."""
        return 1 + max(part.height for part in self.parts) if self.parts else 0


def grouped(topology: Topology) -> Group:
    """All ranks, by their places. Levels on which nothing is divided are left out."""
    return _group(topology.places, tuple(range(topology.ranks)), 0)


def _group(places: list[list[int]], ranks: tuple[int, ...], level: int) -> Group:
    if len(ranks) == 1:
        return Group(ranks)
    if level == len(places[ranks[0]]):
        return Group(ranks, tuple(Group((rank,)) for rank in ranks))
    names = sorted({places[rank][level] for rank in ranks})
    inside = [tuple(rank for rank in ranks if places[rank][level] == name) for name in names]
    parts = [_group(places, part, level + 1) for part in inside]
    return parts[0] if len(parts) == 1 else Group(ranks, tuple(parts))


def edges(group: Group, root: int, chunk: int, step: int = 0) -> Iterator[Edge]:
    """The tree along which `chunk` goes from `root` to all of `group`: outermost groups first; no routes."""
    for part in group.parts:
        owner = root if root in part.ranks else part.owner(chunk)
        if owner != root:
            yield Edge(root, owner, step)
        yield from edges(part, owner, chunk, step + 1)


def _swapped(topology: Topology, pieces: int) -> Schedule:
    """All-reduce between two groups: sums inside each, which their owners swap, and the way back."""
    top = grouped(topology)
    chunks = _chunks(top) * pieces
    sends = [send for chunk in range(chunks) for send in _swap(top, chunk)]
    routes = spread(topology, [Ends(send.step, send.src, send.dst) for send in sends])
    over = (
        Send(send.step, send.src, send.dst, send.chunk, send.reduce, route)
        for send, route in zip(sends, routes, strict=True)
    )
    return schedule("hierarchy", "all_reduce", topology.ranks, chunks, over, topology=topology)


def _swap(top: Group, chunk: int) -> Iterator[Send]:
    middle = max(part.height for part in top.parts)
    for part in top.parts:
        for edge in edges(part, part.owner(chunk), chunk):
            yield Send(middle - 1 - edge.step, edge.child, edge.parent, chunk, True)
            yield Send(middle + 1 + edge.step, edge.parent, edge.child, chunk, False)
    one, other = (part.owner(chunk) for part in top.parts)
    for src, dst in ((one, other), (other, one)):
        yield Send(middle, src, dst, chunk, True)


def _chunks(top: Group) -> int:
    """As many as give every member of the outermost groups the same share, where that is not too many."""
    even = lcm(*(len(part.ranks) for part in top.parts))
    most = _MOST_CHUNKS_PER_RANK * len(top.ranks)
    return even if even <= most else max(len(part.ranks) for part in top.parts)


def _make(collective: str, topology: Topology, pieces: int) -> Schedule:
    top = grouped(topology)
    if collective == "all_reduce" and len(top.parts) == 2:
        return _swapped(topology, pieces)
    roots = [0] if collective in ("broadcast", "reduce") else list(range(topology.ranks))
    down, up = (_trees(top, roots, links) for links in (topology, topology.reversed()))
    return schedule_of(down, "hierarchy", collective, topology, up=up, pieces=pieces)


def _trees(top: Group, roots: Sequence[int], topology: Topology) -> list[Tree]:
    trees = [Tree(root, tuple(edges(top, root, root))) for root in roots]
    ends = [Ends(edge.step, edge.parent, edge.child) for tree in trees for edge in tree.edges]
    routes = map(tuple, spread(topology, ends))
    return [
        Tree(tree.root, tuple(edge._replace(route=next(routes)) for edge in tree.edges)) for tree in trees
    ]


def _refuses(topology: Topology) -> str:
    if not topology.places:
        return "it needs places, which say who shares a site, a rack, a host"
    if grouped(topology).height < 2:
        return "all ranks are in one place; it needs two or more, and one of them with several ranks"
    return ""


hierarchy = Builder("hierarchy", _make, _refuses, pieces=(1, 4))
"""Each slow link is crossed once in each direction by one share: cost `S / b` between two sites."""
