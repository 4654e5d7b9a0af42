"""One network of every family, and networks drawn at random, for tests that go over all of them."""

from __future__ import annotations

from hypothesis import strategies as st

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

WIRES = st.builds(
    Wire,
    bandwidth=st.sampled_from([10**6, 3 * 10**6, 10**7, 10**8]),
    latency_s=st.sampled_from([0.0, 1e-6, 1e-3]),
    count=st.integers(1, 2),
)


@st.composite
def networks(draw: st.DrawFn, switches: int = 2, even: bool = False) -> Topology:
    """Ranks and up to so many switches, linked there and back, and some links one way.

    Each link has a wire of its own; `even`: all have the same, and all lead both ways.
    """
    ranks, extra = draw(st.integers(2, 6)), draw(st.integers(0, switches))
    nodes = ranks + extra
    pairs = {(node, draw(st.integers(0, node - 1))) for node in range(1, nodes)}
    for switch in range(ranks, nodes):
        others = {rank for rank in range(ranks) if (switch, rank) not in pairs}
        pairs.add((switch, draw(st.sampled_from(sorted(others)))))
    node = st.integers(0, nodes - 1)
    more = draw(st.sets(st.tuples(node, node).filter(lambda pair: pair[0] != pair[1]), max_size=4))
    both = {*pairs, *((b, a) for a, b in pairs), *more, *((b, a) for a, b in more if even)}
    wire = draw(WIRES)
    wires = {pair: wire if even else draw(WIRES) for pair in sorted(both)}
    links = [(*pair, wire.bandwidth, wire.latency_s, wire.count) for pair, wire in wires.items()]
    return Topology(ranks, links, "drawn")
