"""The bottleneck cut against all cuts there are."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.collective import topology
from tweed.collective.cuts import bottleneck, capacities
from tweed.collective.forwarding import copies_needed
from tweed.collective.topology import Topology
from tweed.errors import UsageError

RATES = {
    "mesh 4x4": (topology.mesh(4, 4), Fraction(2, 15)),
    "mesh 8x8": (topology.mesh(8, 8), Fraction(2, 63)),
    "torus 4x4": (topology.torus(4, 4), Fraction(4, 15)),
    "torus 8x8": (topology.torus(8, 8), Fraction(4, 63)),
    "line 5": (topology.line(5), Fraction(1, 4)),
    "hypercube 3": (topology.hypercube(3), Fraction(3, 7)),
}


@pytest.mark.parametrize("name", RATES)
def test_the_corner_of_a_grid_is_its_bottleneck(name: str) -> None:
    network, rate = RATES[name]
    cut = bottleneck(network)
    assert cut.rate == rate * topology.GIGABIT.bandwidth
    assert cut.ranks == network.ranks - 1
    assert cut.seconds(10**9, network.ranks) == pytest.approx(8 / network.ranks / float(rate))


@st.composite
def networks(draw: st.DrawFn) -> Topology:
    """A ring among ranks and switches, so that all are reached, and more links at random."""
    ranks, switches = draw(st.integers(2, 4)), draw(st.integers(0, 2))
    nodes = ranks + switches
    around = {(a, (a + 1) % nodes) for a in range(nodes)}
    pairs = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)).filter(lambda ab: ab[0] != ab[1])
    ends = sorted(around | draw(st.sets(pairs, max_size=8)))
    bandwidths = st.one_of(st.integers(1, 8), st.integers(1, 10**10))
    links = [(a, b, draw(bandwidths), 1e-6, draw(st.integers(1, 2))) for a, b in ends]
    return Topology(ranks, links)


def worst_of_all(network: Topology) -> Fraction:
    worst = None
    for size in range(1, network.nodes):
        for inside in map(set, combinations(range(network.nodes), size)):
            ranks = sum(rank in inside for rank in range(network.ranks))
            if 0 < ranks < network.ranks:
                out = sum(b * n for a, z, b, _, n in network.links if a in inside and z not in inside)
                worst = min(filter(None, (worst, Fraction(out, ranks))))
    assert worst is not None
    return worst


@given(networks())
def test_no_cut_is_worse_than_the_bottleneck(network: Topology) -> None:
    cut = bottleneck(network)
    assert cut.rate == Fraction(cut.bandwidth, cut.ranks)
    worst = float(worst_of_all(network))
    assert float(cut.rate) <= worst * (1 + 1e-6)
    if not copies_needed(capacities(network)[0], network.ranks):
        assert float(cut.rate) == pytest.approx(worst, rel=1e-6)


def star(up: int, down: int, capacity: dict[int, int]) -> Topology:
    links = [(a, 4, up, 0.0) for a in range(4)] + [(4, b, down, 0.0) for b in range(4)]
    return Topology(4, links, capacities=capacity)


@pytest.mark.parametrize(
    ("network", "rate"),
    [
        (star(900, 900, {}), 300),
        (star(900, 9000, {}), 300),
        (star(9000, 900, {}), 300),
        (star(900, 900, {4: 2400}), 200),
    ],
    ids=["even", "slow way up", "slow way down", "slow core"],
)
def test_switches_copy_nothing(network: Topology, rate: int) -> None:
    """Each of four ranks sends its part to three others: twelve parts go up, through the core, and down."""
    assert float(bottleneck(network).rate) == pytest.approx(rate, rel=1e-6)


def test_a_flat_network_is_limited_by_a_port() -> None:
    assert bottleneck(Topology.complete(8, 700, 0.0)).rate == 100


def test_a_network_in_pieces_is_named() -> None:
    links = [(0, 1, 5, 0.0), (1, 0, 5, 0.0), (2, 3, 5, 0.0), (3, 2, 5, 0.0), (2, 0, 5, 0.0)]
    with pytest.raises(UsageError, match="nothing leads from ranks 0-1 to the others"):
        bottleneck(Topology(4, links))
    with pytest.raises(UsageError, match="one rank"):
        bottleneck(Topology(1, []))
