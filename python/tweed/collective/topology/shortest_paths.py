"""Paths from one rank to another over the fewest links."""

from __future__ import annotations

from collections import defaultdict, deque
from functools import lru_cache

from tweed._core import Topology


@lru_cache(maxsize=2048)
def shortest_paths(topology: Topology, src: int) -> dict[int, tuple[int, ...]]:
    """The nodes between `src` and every node on a path with the fewest links; of equals, the lowest."""
    out = _out(topology)
    found: dict[int, tuple[int, ...]] = {src: ()}
    queue = deque([src])
    while queue:
        node = queue.popleft()
        on = (*found[node], node) if node != src else ()
        for after in out.get(node, ()):
            if after not in found:
                found[after] = on
                queue.append(after)
    return found


@lru_cache(maxsize=64)
def _out(topology: Topology) -> dict[int, list[int]]:
    out = defaultdict(list)
    for a, b, *_ in topology.links:
        out[a].append(b)
    return dict(out)
