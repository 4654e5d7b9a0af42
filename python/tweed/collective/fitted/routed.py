"""Flat builders on a network: each send takes a shortest way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

from tweed._core import Schedule, Send, Topology
from tweed.collective.builder import Builder, schedule
from tweed.collective.fitted import cycles
from tweed.collective.fitted.base import Fitted, anywhere
from tweed.collective.fitted.ways import routes
from tweed.collective.table import find
from tweed.errors import UsageError

Order = Callable[[Topology], Sequence[int]]
"""Which rank of a network takes the place of each rank of a flat builder."""


def as_numbered(topology: Topology) -> Sequence[int]:
    """Every rank takes its own place."""
    return range(topology.ranks)


def routed(builder: Builder, topology: Topology, order: Order = as_numbered, name: str = "") -> Schedule:
    """The builder's schedule over the links of a network.

    Args:
      builder: its chunks are one per rank, or have no owners.
      topology: the links.
      order: where each rank of the builder is. Its chunks move with it.
      name: of the schedule; "" is the builder's.

    Raises: UsageError if no way leads from one rank to another.
    """
    at = order(topology)
    chunks = builder.chunks(topology.ranks)
    owned = at if chunks == topology.ranks else range(chunks)
    way = cache(partial(_way, topology))
    sends = (_over(send, at, owned, way) for send in builder(topology.ranks))
    name = name or builder.name
    return schedule(name, builder.collective, topology.ranks, chunks, sends, topology=topology)


def _over(send: Send, at: Sequence[int], owned: Sequence[int], way: Callable[[int, int], list[int]]) -> Send:
    src, dst = at[send.src], at[send.dst]
    return Send(send.step, src, dst, owned[send.chunk], send.reduce, way(src, dst), send.after)


def _way(topology: Topology, src: int, dst: int) -> list[int]:
    if topology.has_link(src, dst):
        return []
    way = routes(topology, src).get(dst)
    if way is None:
        raise UsageError(f"no way leads from rank {src} to rank {dst}: add the links that are missing")
    return list(way)


def on_a_network(name: str, *collectives: str, order: Order = as_numbered) -> Fitted:
    """The flat builder `name` as one that fits any network."""

    def make(collective: str, topology: Topology, pieces: int) -> Schedule:
        return routed(find(collective, name), topology, order)

    return Fitted(name, collectives, make, anywhere)


ring = on_a_network("ring", "all_reduce", "reduce_scatter", "all_gather", order=cycles.order)
halving_doubling = on_a_network("halving_doubling", "all_reduce", "reduce_scatter", "all_gather")
double_binary_tree = on_a_network("double_binary_tree", "all_reduce")
