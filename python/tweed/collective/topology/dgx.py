"""Machines with many GPUs, as far as their links go."""

from __future__ import annotations

from dataclasses import replace

from tweed._core import Topology
from tweed.collective.topology.base import NVLINK, Fields, Wire, both_ways

_CUBE_MESH = {
    (0, 1): 2,
    (0, 2): 1,
    (0, 3): 1,
    (1, 2): 1,
    (1, 3): 2,
    (2, 3): 2,
    (4, 5): 2,
    (4, 6): 1,
    (4, 7): 1,
    (5, 6): 1,
    (5, 7): 2,
    (6, 7): 2,
    (0, 4): 2,
    (1, 5): 1,
    (2, 6): 2,
    (3, 7): 1,
}
"""How many links lie side by side between two GPUs; every GPU has six."""


def dgx1(wire: Wire = NVLINK) -> Topology:
    """Eight GPUs, each with six links: a hybrid cube mesh.

    Source: Cai et al., "Synthesizing Optimal Collective Algorithms", PPoPP 2021, figure 1.
    """
    links: list[Fields] = []
    for pair, count in _CUBE_MESH.items():
        links.extend(both_ways([pair], replace(wire, count=count * wire.count)))
    return Topology(8, links, "DGX-1")


def dgx2(wire: Wire = NVLINK) -> Topology:
    """Sixteen GPUs on two boards with six switches each.

    A GPU has one link to each switch of its board; each switch has eight to its opposite on the other board.
    Source: NVIDIA, "NVSwitch: the world's highest-bandwidth on-node switch", 2018.
    """
    ranks, board, planes = 16, 8, 6
    switch = [[ranks + side * planes + plane for plane in range(planes)] for side in range(2)]
    hosts = [(rank, node) for rank in range(ranks) for node in switch[rank // board]]
    across = replace(wire, count=board * wire.count)
    links = [*both_ways(hosts, wire), *both_ways(zip(*switch, strict=True), across)]
    places = [(0, rank // board, rank) for rank in range(ranks)]
    return Topology(ranks, links, "DGX-2", places=places)
