"""MultiTree: one tree per rank, grown together so that no link is used twice in a step.

Source: Huang et al., "Communication Algorithm-Architecture Co-Design for Distributed Deep Learning",
ISCA 2021, section III (figures in the notes to `systems/multitree.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict

from tweed._core import Schedule, Topology
from tweed.collective.fitted.base import Fitted
from tweed.collective.fitted.trees import Edge, Tree, schedule_of


def grow(topology: Topology) -> list[Tree]:
    """Trees from every rank, in root order; a tree takes at most one edge per visit, a link one per step."""
    links = {(src, dst): count for src, dst, _, _, count in topology.links}
    out = defaultdict(list)
    for src, dst in links:
        out[src].append(dst)
    members = [[root] for root in range(topology.ranks)]
    edges: list[list[Edge]] = [[] for _ in members]
    step = 0
    while any(len(tree) < topology.ranks for tree in members):
        free, parents = Counter(links), [list(tree) for tree in members]
        growing = True
        while growing:
            growing = False
            for root, tree in enumerate(members):
                edge = _next(parents[root], tree, out, free)
                if edge is not None:
                    free[edge] -= 1
                    tree.append(edge[1])
                    edges[root].append(Edge(*edge, step))
                    growing = True
        step += 1
    return [Tree(root, tuple(found)) for root, found in enumerate(edges)]


def _next(
    parents: list[int], tree: list[int], out: dict[int, list[int]], free: Counter[tuple[int, int]]
) -> tuple[int, int] | None:
    for parent in parents:
        for child in out[parent]:
            if free[parent, child] and child not in tree:
                return parent, child
    return None


def _make(collective: str, topology: Topology, pieces: int) -> Schedule:
    up = None if topology == topology.reversed() else grow(topology.reversed())
    return schedule_of(grow(topology), "multitree", collective, topology, up=up, pieces=pieces)


def _refuses(topology: Topology) -> str:
    return "it grows over links, and all ranks share one core" if topology.is_complete else ""


multitree = Fitted("multitree", ("all_reduce", "all_gather", "reduce_scatter"), _make, _refuses)
