"""Flat builders on a network: each send takes a shortest way."""

from __future__ import annotations

from collections import defaultdict, deque
from functools import lru_cache

from tweed._core import Schedule, Send, Topology
from tweed.collective.builder import Builder, schedule
from tweed.collective.fitted.base import Fitted, anywhere
from tweed.collective.table import find
from tweed.errors import UsageError


@lru_cache(maxsize=64)
def routes(topology: Topology, src: int) -> dict[int, tuple[int, ...]]:
    """The nodes between `src` and every rank on a way with the fewest links; of equals, the lowest."""
    out = defaultdict(list)
    for a, b, *_ in topology.links:
        out[a].append(b)
    found: dict[int, tuple[int, ...]] = {src: ()}
    queue = deque([src])
    while queue:
        node = queue.popleft()
        on = (*found[node], node) if node != src else ()
        for after in out[node]:
            if after not in found:
                found[after] = on
                queue.append(after)
    return found


def routed(builder: Builder, topology: Topology) -> Schedule:
    """The builder's schedule over the links of a network.

    Raises: UsageError if no way leads from one rank to another.
    """
    if topology.is_complete:
        return builder.schedule(topology.ranks)
    sends = [_over(send, topology) for send in builder(topology.ranks)]
    chunks = builder.chunks(topology.ranks)
    return schedule(builder.name, builder.collective, topology.ranks, chunks, sends, topology=topology)


def _over(send: Send, topology: Topology) -> Send:
    way = routes(topology, send.src).get(send.dst)
    if way is None:
        raise UsageError(
            f"no way leads from rank {send.src} to rank {send.dst}: add the links that are missing"
        )
    return Send(send.step, send.src, send.dst, send.chunk, send.reduce, list(way), send.after)


def on_a_network(name: str, *collectives: str) -> Fitted:
    """The flat builder `name` as one that fits any network."""

    def make(collective: str, topology: Topology, pieces: int) -> Schedule:
        return routed(find(collective, name), topology)

    return Fitted(name, collectives, make, anywhere)
