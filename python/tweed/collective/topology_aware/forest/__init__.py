"""ForestColl: as many trees as the bottleneck cut lets through, for any network.

    rate      the bottleneck cut: what each rank can send to all          (`collective.cuts`)
    shares    a few trees per rank that come close to it                      (`shares`)
    splitting switches are taken out, their paths kept                        (`splitting`)
    packing   spanning trees that together use each link as often as they may (`packing`)
    timing    the order in which each link serves them                        (`timing`)

An all-reduce over direct links that are alike in both directions runs over undirected trees (`orienting`), up
and down at once, where there are clearly more of them, as on a mesh. Elsewhere it is a reduce-scatter and an
all-gather, overlapped.

Source: Zhao et al., "ForestColl: Throughput-Optimal Collective Communications on Heterogeneous Network
Fabrics", arXiv 2402.06787. The undirected trees and the timing are our own.
"""

from __future__ import annotations

from functools import lru_cache

from tweed._core import Schedule, Topology
from tweed.collective.builder import Builder
from tweed.collective.cuts import bottleneck, capacities
from tweed.collective.topology_aware.forest.grown import rooted, undirected
from tweed.collective.topology_aware.forest.orienting import is_even, strength
from tweed.collective.topology_aware.forest.timing import Plan, timed
from tweed.collective.topology_aware.trees import Tree, schedule_of

__all__ = ["forest"]


_CLEARLY = 1.02


@lru_cache(maxsize=64)
def _planned(collective: str, topology: Topology) -> Plan:
    """The trees, for any number of pieces."""
    if collective == "all_gather":
        return timed(rooted(topology)[0], [], topology)
    if collective == "reduce_scatter":
        return timed([], rooted(topology.reversed())[0], topology)
    if _undirected_pays(topology):
        trees, _ = undirected(topology)
        return timed(trees, trees, topology)
    return timed(*_both(topology), topology)


def _undirected_pays(topology: Topology) -> bool:
    """Are undirected trees clearly quicker than a reduce-scatter and an all-gather, which fill sooner?"""
    links, nodes = capacities(topology)
    if nodes > topology.ranks or not is_even(links):
        return False
    return strength(links, topology.ranks) > _CLEARLY * topology.ranks * float(bottleneck(topology).rate) / 2


def _both(topology: Topology) -> tuple[list[Tree], list[Tree]]:
    """Trees for an all-gather and for a reduce-scatter, equally many."""
    (down, there), back = rooted(topology), topology.reversed()
    if back == topology:
        return down, down
    up, here = rooted(back)
    if there.trees < here.trees:
        down, _ = rooted(topology, here.trees)
    elif there.trees > here.trees:
        up, _ = rooted(back, there.trees)
    return down, up


def _make(collective: str, topology: Topology, pieces: int) -> Schedule:
    down, up, stride = _planned(collective, topology)
    return schedule_of(
        down or up, "forest", collective, topology, up=up, pieces=pieces, stride=stride, ordered=True
    )


forest = Builder("forest", _make, pieces=(1, 4, 16, 64))
