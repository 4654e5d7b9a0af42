"""Networks of switches with hosts behind them: star, two-level fat-tree, BiGraph, dragonfly."""

from __future__ import annotations

from itertools import combinations, product

from tweed._core import Topology
from tweed.collective.topology.base import GIGABIT, Cable, Fields, at_least, both_ways
from tweed.errors import UsageError


def star(ranks: int, cable: Cable = GIGABIT, capacity: int | None = None) -> Topology:
    """All ranks behind one switch.

    Args:
      ranks: how many, 2 or more.
      cable: from a rank up to the switch, and down.
      capacity: bytes per second that the switch takes through in all; None: what its links bring.
    """
    at_least(2, ranks=ranks)
    links = both_ways(((rank, ranks) for rank in range(ranks)), cable)
    return Topology(ranks, list(links), f"star {ranks}", {} if capacity is None else {ranks: capacity})


def fat_tree(
    leaves: int, hosts: int, spines: int, cable: Cable = GIGABIT, trunk: Cable | None = None
) -> Topology:
    """Two levels: hosts behind leaf switches, and every leaf is linked with every spine.

    The network of 64 in the MultiTree paper (its section VI) is `fat_tree(8, 8, 8)`.

    Args:
      leaves: switches with hosts, 2 or more; ranks are numbered leaf by leaf.
      hosts: per leaf.
      spines: switches above the leaves.
      cable: from a host up to its leaf, and down.
      trunk: from a leaf up to a spine, and down; None: as `cable`.
    """
    at_least(2, leaves=leaves)
    at_least(1, hosts=hosts, spines=spines)
    ranks = leaves * hosts
    first_spine = ranks + leaves
    up = ((ranks + leaf, first_spine + spine) for leaf, spine in product(range(leaves), range(spines)))
    links = [*_hosts(ranks, hosts, cable), *both_ways(up, trunk or cable)]
    places = [(0, rank // hosts, rank) for rank in range(ranks)]
    return Topology(ranks, links, f"fat-tree {leaves}x{hosts}, {spines} spines", places=places)


def bigraph(hosts: int, switches: int, cable: Cable = GIGABIT, trunk: Cable | None = None) -> Topology:
    """Two layers of switches, hosts behind both, and every lower switch is linked with every upper one.

    The networks of 32 and 64 in the MultiTree paper are `bigraph(4, 8)` and `bigraph(4, 16)`.
    Source: Dong et al., "EFLOPS: Algorithm and System Co-Design for a High Performance Distributed Training
    Platform", HPCA 2020.

    Args:
      hosts: per switch; ranks are numbered switch by switch, the lower layer first.
      switches: of both layers together, an even number.
      cable: from a host to its switch, and back.
      trunk: from a lower switch to an upper one, and back; None: as `cable`.

    Raises: UsageError if the layers cannot be equal.
    """
    at_least(1, hosts=hosts)
    at_least(2, switches=switches)
    if switches % 2:
        raise UsageError(f"{switches} switches do not make two equal layers; give an even number")
    ranks, half = hosts * switches, switches // 2
    across = ((ranks + low, ranks + half + high) for low, high in product(range(half), range(half)))
    links = [*_hosts(ranks, hosts, cable), *both_ways(across, trunk or cable)]
    places = [(0, rank // hosts, rank) for rank in range(ranks)]
    return Topology(ranks, links, f"BiGraph {hosts}x{switches}", places=places)


def dragonfly(
    groups: int,
    routers: int,
    hosts: int,
    cable: Cable = GIGABIT,
    local: Cable | None = None,
    between: Cable | None = None,
) -> Topology:
    """Groups of routers, wired all to all inside, and one wire between every two groups.

    Each group's wires to the others are dealt out to its routers in turn.

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


def _hosts(ranks: int, per_switch: int, cable: Cable) -> list[Fields]:
    """Every rank under its switch; switches are numbered from `ranks` on."""
    return list(both_ways(((rank, ranks + rank // per_switch) for rank in range(ranks)), cable))
