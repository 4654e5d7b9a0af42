"""Dragonfly: groups of routers, wired all to all inside, and one wire between every two groups."""

from __future__ import annotations

from itertools import combinations

from tweed._core import Topology
from tweed.collective.topology.base import GIGABIT, Cable, at_least, both_ways


def dragonfly(
    groups: int,
    routers: int,
    hosts: int,
    cable: Cable = GIGABIT,
    local: Cable | None = None,
    between: Cable | None = None,
) -> Topology:
    """Each group's wires to the others are dealt out to its routers in turn.

    Source: Kim et al., "Technology-Driven, Highly-Scalable Dragonfly Topology", ISCA 2008.

    Args:
      groups: two or more.
      routers: per group; ranks are numbered group by group, router by router.
      hosts: per router.
      cable: from a host up to its router, and down.
      local: between routers of a group; None: as `cable`.
      between: between groups; None: as `cable`.
    """
    at_least(2, groups=groups)
    at_least(1, routers=routers, hosts=hosts)
    ranks = groups * routers * hosts

    def router(group: int, turn: int) -> int:
        return ranks + group * routers + turn % routers

    up = [(rank, ranks + rank // hosts) for rank in range(ranks)]
    inside = [
        (router(group, a), router(group, b))
        for group in range(groups)
        for a, b in combinations(range(routers), 2)
    ]
    far = [(router(a, b - a - 1), router(b, groups - 1 - (b - a))) for a, b in combinations(range(groups), 2)]
    links = [*both_ways(up, cable), *both_ways(inside, local or cable), *both_ways(far, between or cable)]
    places = [(rank // (routers * hosts), rank // hosts, rank) for rank in range(ranks)]
    name = f"dragonfly {groups}x{routers}x{hosts}"
    return Topology(ranks, links, name, places=places)
