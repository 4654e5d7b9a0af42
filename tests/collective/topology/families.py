"""One network of every family, for tests that go over all of them."""

from __future__ import annotations

from tweed.collective import topology
from tweed.collective.topology import Topology, Wire

SLOW, FAST = Wire(5_000_000, 30e-3), Wire(20_000_000, 10e-3)

DIRECT: tuple[Topology, ...] = (
    topology.line(3),
    topology.ring(5),
    topology.mesh(2, 3),
    topology.torus(3, 4),
    topology.hypercube(3),
    topology.dgx1(),
    topology.random_regular(10, 3, seed=1),
)
SWITCHED: tuple[Topology, ...] = (
    topology.star(5),
    topology.fat_tree(3, 2, 2),
    topology.bigraph(2, 4),
    topology.dgx2(),
    topology.dragonfly(3, 2, 2),
    topology.sites([[2, 1], [3]], wide={(0, 1): FAST, (1, 0): SLOW}),
)
ALL = DIRECT + SWITCHED
