"""One network of every family, and networks drawn at random, for tests that go over all of them."""

from __future__ import annotations

from math import prod

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

MORE: tuple[Topology, ...] = (
    *(topology.mesh(*sides) for sides in [(2, 2), (3, 3), (4, 4), (3, 5), (5, 5)]),
    *(topology.torus(*sides) for sides in [(8,), (3, 3), (4, 4), (2, 4), (4, 4, 2)]),
    *(topology.bigraph(*size) for size in [(1, 2), (2, 2), (4, 4)]),
    topology.sites([[2], [2]]),
    topology.sites([[2, 2], [3, 1], [1]]),
    Topology.complete(5, 10**6, 1e-3),
)
"""Others, for builders that take few of the above."""

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


SIDES = st.lists(st.integers(2, 5), min_size=1, max_size=3).filter(lambda sides: prod(sides) <= 30)

MEMBERS: st.SearchStrategy[Topology] = st.one_of(
    SIDES.map(lambda sides: topology.mesh(*sides)),
    SIDES.map(lambda sides: topology.torus(*sides)),
    st.integers(1, 4).map(topology.hypercube),
    st.builds(topology.fat_tree, st.integers(2, 3), st.integers(2, 3), st.integers(1, 2), WIRES, WIRES),
    st.builds(topology.bigraph, st.sampled_from([1, 2, 4]), st.sampled_from([2, 4]), WIRES, WIRES),
    st.builds(topology.dragonfly, st.integers(2, 4), st.integers(1, 3), st.integers(1, 2), WIRES, WIRES),
    st.builds(
        topology.sites,
        st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=2), min_size=2, max_size=3),
        st.tuples(WIRES, WIRES),
        WIRES,
        WIRES,
    ),
)
"""A network of a family, of any size that is small."""
