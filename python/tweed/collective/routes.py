"""Routes for sends that name only their two ends: the shortest, and of equally short ones the least loaded.

Between two ranks behind switches, and on a grid, there are mostly several shortest routes. If every send took
the same one, a halving-doubling of 64 ranks on a fat-tree would take 14 times as long as a link needs for the
buffer, all through one spine; spread it takes 1.97 times. So no pattern is slower than its network makes it.

What is spread are chunks, with the whole schedule known: switches that balance equal-cost routes (ECMP) at
their best do as well. The engine that runs live takes no notice of routes: those over switches are the
switches' own affair, and the IP network leads from a rank to one that is no neighbour. The checker proves
them, and the simulator times them.

Source: Awerbuch et al., "Load balancing in the Lp norm", FOCS 1995: what comes next takes the place where the
sum of the squares of all loads grows least. Here the places are routes, and the loads those of their links.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache, lru_cache, partial
from itertools import pairwise
from typing import NamedTuple

from tweed._core import Topology
from tweed.collective.topology.base import shortest_paths
from tweed.errors import UsageError

Hop = tuple[int, int]


class Ends(NamedTuple):
    """A send of which only the step and the two ranks are known."""

    step: int
    src: int
    dst: int


def spread(topology: Topology, sends: Sequence[Ends]) -> list[list[int]]:
    """The nodes between the ends of every send, in order. Equal arguments give equal routes.

    Of the routes with the fewest links each send takes the one that adds least to the sum, over links, of
    bytes squared over bandwidth: of all steps, as steps overlap where ranks send what is ready; of equals, of
    its own step; of equals, the one over the lowest nodes. Messages take turns, each with its next chunk, so
    that the chunks of one share a route where that is as good.

    Args:
      topology: the links; those side by side are one that is so many times as fast.
      sends: one per chunk; all chunks are taken as equally large.

    Raises: UsageError if no path leads from one rank to another.

    Cost: per send, a pass over the links of all its shortest routes: 4 us where there is one route, 12 us
      over the 8 spines of a fat-tree of 64 ranks.
    """
    loads, hops = _Loads(topology), cache(partial(_shortest, topology))
    routes = list[list[int]]([[]]) * len(sends)
    for place in _turns(sends):
        _, src, dst = ends = sends[place]
        routes[place] = loads.take(ends, hops(src, dst))
    return routes


def _turns(sends: Sequence[Ends]) -> list[int]:
    """The places of sends by step; within a step, the first chunk of every message, then the second, ..."""
    seen: Counter[Ends] = Counter()
    turns = list[tuple[int, int, int]]()
    for place, ends in enumerate(sends):
        turns.append((ends.step, seen[ends], place))
        seen[ends] += 1
    return [place for _, _, place in sorted(turns)]


class _Loads:
    """How long links are busy so far, in all and by step; 1 is a chunk over the fastest link."""

    def __init__(self, topology: Topology) -> None:
        speeds = {(a, b): bandwidth * count for a, b, bandwidth, _, count in topology.links}
        self._adds = {hop: max(speeds.values()) / speed for hop, speed in speeds.items()}
        self._in_all: defaultdict[Hop, float] = defaultdict(float)
        self._in_step: defaultdict[tuple[int, Hop], float] = defaultdict(float)

    def take(self, ends: Ends, hops: Sequence[Hop]) -> list[int]:
        """Counts the best of the routes over `hops`; the nodes between its ends."""
        path = self._best(ends, hops) if len(hops) > 1 else [ends.src, ends.dst]
        for hop in pairwise(path):
            self._in_all[hop] += self._adds[hop]
            self._in_step[ends.step, hop] += self._adds[hop]
        return path[1:-1]

    def _best(self, ends: Ends, hops: Sequence[Hop]) -> list[int]:
        """Node by node, what the best route there adds to the sum in all, and to that of the step."""
        best: dict[int, tuple[float, float, list[int]]] = {ends.src: (0.0, 0.0, [ends.src])}
        for hop in hops:
            in_all, in_step, path = best[hop[0]]
            adds, node = self._adds[hop], hop[1]
            in_all += 2 * self._in_all[hop] + adds
            in_step += 2 * self._in_step[ends.step, hop] + adds
            if node not in best or (in_all, in_step) < best[node][:2]:
                best[node] = (in_all, in_step, [*path, node])
        return best[ends.dst][2]


def _shortest(topology: Topology, src: int, dst: int) -> tuple[Hop, ...]:
    """Every link of every shortest route, those near `src` first, and of a node those from the lowest."""
    if topology.has_link(src, dst):
        return ((src, dst),)
    near = shortest_paths(topology, src)
    if dst not in near:
        raise UsageError(f"no way leads from rank {src} to rank {dst}: add the links that are missing")
    far = {node: len(path) + 1 for node, path in near.items()} | {src: 0}
    into, layer, hops = _into(topology), {dst}, list[Hop]()
    while src not in layer:
        last = [(a, b) for b in sorted(layer) for a in into[b] if a in far and far[a] + 1 == far[b]]
        layer = {a for a, _ in last}
        hops = last + hops
    return tuple(hops)


@lru_cache(maxsize=64)
def _into(topology: Topology) -> defaultdict[int, list[int]]:
    """The nodes from which a link leads to each node."""
    into = defaultdict(list)
    for a, b, *_ in topology.links:
        into[b].append(a)
    return into
