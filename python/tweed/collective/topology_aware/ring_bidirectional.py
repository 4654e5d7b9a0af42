"""Both directions of a ring: half of the buffer in each direction of a Hamiltonian cycle.

A mesh with odd sides has no such cycle. There the ring leaves out rank 0, a corner, which hangs on the ring
by one neighbour for each direction and so takes part in full.

Source: the bidirectional ring is folklore; that on odd meshes it leaves out a corner is from Laskar et al.
(TTO, HPCA 2024; there RingBiOdd). How that corner takes part is our own design.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tweed._core import Schedule, Topology
from tweed.collective.builder import Builder
from tweed.collective.topology_aware import cycles
from tweed.collective.topology_aware.trees import Edge, Tree, schedule_of


def grow(topology: Topology) -> list[Tree]:
    """Two chains from every rank, in root order: one in each direction."""
    ring = cycles.cycle(topology)
    if ring:
        return [_chain(root, turn) for root in range(topology.ranks) for turn in (ring, ring[::-1])]
    ring = cycles.cycle_but_one(topology)
    first, second = (rank for rank in ring if topology.has_link(0, rank))
    turns = ((ring, first), (ring[::-1], second))
    return [_chain_and_corner(root, turn, by) for root in range(topology.ranks) for turn, by in turns]


def _chain(root: int, ring: Sequence[int]) -> Tree:
    start = ring.index(root)
    path = [*ring[start:], *ring[:start]]
    return Tree(root, tuple(Edge(a, b, step) for step, (a, b) in enumerate(pairwise(path))))


def _chain_and_corner(root: int, ring: Sequence[int], by: int) -> Tree:
    """Round a ring without rank 0, which is linked with rank `by` of it."""
    if root != 0:
        edges = _chain(root, ring).edges
        step = next((edge.step + 1 for edge in edges if edge.child == by), 0)
        return Tree(root, (*edges, Edge(by, 0, step)))
    later = (edge._replace(step=edge.step + 1) for edge in _chain(by, ring).edges)
    return Tree(root, (Edge(0, by, 0), *later))


def _make(collective: str, topology: Topology, pieces: int) -> Schedule:
    return schedule_of(grow(topology), "ring_bidirectional", collective, topology, pieces=pieces)


def _refuses(topology: Topology) -> str:
    if topology.is_complete:
        return (
            "it needs links of their own in both directions, and here all that a rank sends shares one port"
        )
    if topology.ranks < 3 or not (cycles.cycle(topology) or cycles.cycle_but_one(topology)):
        return "it needs a cycle through all ranks over links that lead both ways, and none was found"
    return ""


ring_bidirectional = Builder("ring_bidirectional", _make, _refuses)
