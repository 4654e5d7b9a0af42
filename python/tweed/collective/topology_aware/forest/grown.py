"""From a network to trees: rate, shares, splitting, packing."""

from __future__ import annotations

from collections import deque

from tweed._core import Topology
from tweed.collective.cuts import bottleneck, capacities
from tweed.collective.flows import Capacities
from tweed.collective.topology_aware.forest.orienting import even_shares
from tweed.collective.topology_aware.forest.packing import Branching, pack
from tweed.collective.topology_aware.forest.shares import Shares, shares
from tweed.collective.topology_aware.forest.splitting import Paths, split, take
from tweed.collective.topology_aware.trees import Edge, Tree


def rooted(topology: Topology, trees: int | None = None) -> tuple[list[Tree], Shares]:
    """Trees for an all-gather, equally many from every rank, and their shares. Their steps are not set.

    Args:
      topology: the network.
      trees: so many from each; None: few that come close to the bottleneck cut.
    """
    links, nodes = capacities(topology)
    found = shares(links, nodes, topology.ranks, bottleneck(topology).rate, trees)
    paths = split(found.uses, nodes, topology.ranks, found.trees)
    roots = list(range(topology.ranks)) * found.trees
    uses = {pair: many.total() for pair, many in paths.items()}
    return [_tree(grown, paths, topology) for grown in pack(uses, topology.ranks, roots)], found


def undirected(topology: Topology) -> tuple[list[Tree], Shares]:
    """Trees for an all-reduce where links are even (`is_even`), each from its middle; and their shares."""
    links, _ = capacities(topology)
    depths = _depths(links, topology.ranks)
    found, given = even_shares(links, topology.ranks, depths)
    grown = pack(given, topology.ranks, [depths.index(0)] * found.trees)
    return [_from_the_middle(links) for _, links in grown], found


def _tree(grown: Branching, paths: Paths, topology: Topology) -> Tree:
    root, links = grown
    nodes = 0 if topology.is_complete else topology.nodes
    routes = [tuple(node for node in take(paths[link])[0][0] if node < nodes) for link in links]
    return Tree(root, tuple(Edge(*link, 0, route) for link, route in zip(links, routes, strict=True)))


def _depths(links: Capacities, ranks: int) -> list[int]:
    """How far each rank is from the middle of the network."""
    near: dict[int, list[int]] = {rank: [] for rank in range(ranks)}
    for a, b in links:
        near[a].append(b)
    return min((_distances(rank, near) for rank in range(ranks)), key=max)


def _distances(start: int, near: dict[int, list[int]]) -> list[int]:
    found, queue = {start: 0}, deque([start])
    while queue:
        node = queue.popleft()
        for after in near[node]:
            if after not in found:
                found[after] = found[node] + 1
                queue.append(after)
    return [found[node] for node in sorted(found)]


def _from_the_middle(links: list[tuple[int, int]]) -> Tree:
    """The tree again, rooted where it is lowest."""
    near: dict[int, list[int]] = {}
    for a, b in links:
        near.setdefault(a, []).append(b)
        near.setdefault(b, []).append(a)
    root = min(sorted(near), key=lambda node: max(_distances(node, near)))
    edges, reached, queue = [], {root}, deque([root])
    while queue:
        node = queue.popleft()
        for after in near[node]:
            if after not in reached:
                reached.add(after)
                queue.append(after)
                edges.append(Edge(node, after, 0))
    return Tree(root, tuple(edges))
