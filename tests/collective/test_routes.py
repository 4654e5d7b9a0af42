"""Routes of patterns: shortest, spread evenly, and the same again."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.collective.topology.families import ALL, MEMBERS, networks
from tests.collective.topology_aware.times import LONG, times
from tweed.collective import Send, Topology, pattern, topology
from tweed.collective.builder import routed
from tweed.collective.routes import Ends, spread
from tweed.collective.topology.base import shortest_paths
from tweed.errors import UsageError

# In units of D/b, in whole chunks: what all sends over the lowest of the shortest routes take, and spread.
SPREAD = {
    "fat-tree of 64": (topology.fat_tree(8, 8, 8), 14.0, 1.97),
    "BiGraph of 32": (topology.bigraph(4, 8), 10.0, 4.5),
    "BiGraph of 64": (topology.bigraph(4, 16), 11.0, 4.0),
    "torus 4x4": (topology.torus(4, 4), 2.5, 1.63),
    "torus 8x8": (topology.torus(8, 8), 5.0, 3.05),
    "mesh 9x9": (topology.mesh(9, 9), 13.0, 6.32),
}


@pytest.mark.parametrize("name", SPREAD)
def test_halving_doubling_is_no_slower_than_its_network_makes_it(name: str) -> None:
    network, lowest, least = SPREAD[name]
    took = times("halving_doubling", network, slice_bytes=LONG)
    assert took == pytest.approx(least, rel=0.01) and took < 0.7 * lowest


@given(spines=st.integers(1, 8), hosts=st.integers(1, 6), sends=st.integers(1, 40), data=st.data())
def test_spines_share_what_goes_from_leaf_to_leaf(
    spines: int, hosts: int, sends: int, data: st.DataObject
) -> None:
    network, host = topology.fat_tree(2, hosts, spines), st.integers(0, hosts - 1)
    ends = [Ends(0, data.draw(host), hosts + data.draw(host)) for _ in range(sends)]
    used = Counter(route[1] for route in spread(network, ends))
    assert max(used.values()) == -(-sends // spines)


def test_wide_routes_take_more() -> None:
    wires = [(0, 2, 3), (2, 1, 3), (0, 3, 1), (3, 1, 1)]
    links = [(a, b, bandwidth, 0.0, 1) for a, b, bandwidth in wires]
    routes = spread(Topology(2, links), [Ends(0, 0, 1)] * 8)
    assert Counter(route[0] for route in routes) == {2: 6, 3: 2}


DRAWN = st.one_of(networks(), MEMBERS, st.sampled_from(ALL))


@given(DRAWN, st.data())
def test_routes_are_shortest_and_the_same_again(network: Topology, data: st.DataObject) -> None:
    pairs = st.tuples(st.integers(0, 3), *[st.integers(0, network.ranks - 1)] * 2)
    ends = [Ends(*drawn) for drawn in data.draw(st.lists(pairs.filter(lambda drawn: drawn[1] != drawn[2])))]
    routes = spread(network, ends)
    assert routes == spread(network, ends)
    for (_, src, dst), route in zip(ends, routes, strict=True):
        assert len(route) == len(shortest_paths(network, src)[dst])
        assert all(network.has_link(a, b) for a, b in pairwise([src, *route, dst]))


def test_a_network_in_pieces_is_named() -> None:
    with pytest.raises(UsageError, match="no way leads from rank 1 to rank 0"):
        spread(Topology(2, [(0, 1, 9, 0.0, 1)]), [Ends(0, 0, 1), Ends(0, 1, 0)])


@pytest.mark.parametrize("network", [topology.fat_tree(8, 8, 8), topology.torus(8, 8), topology.mesh(8, 8)])
def test_pieces_follow_each_other_along_the_trees(network: Topology) -> None:
    for name, pieces, share in (("binomial_tree", 16, 0.85), ("double_binary_tree", 64, 0.31)):
        whole, flowing = (times(name, network, slice_bytes=LONG, pieces=cut) for cut in (1, pieces))
        assert flowing < share * whole


def test_every_piece_waits_for_what_its_own_sends_wait_for() -> None:
    @pattern("in turn", "broadcast", chunks=lambda ranks: 2)
    def in_turn(ranks: int) -> list[Send]:
        return [Send(0, 0, 1, 0, False), Send(1, 0, 1, 1, False, [], [0])]

    found = routed(in_turn, topology.line(2), pieces=2)
    sends = found.sends
    waits = {(send.chunk, sends[before].chunk) for send in sends for before in send.after}
    assert found.chunks == 4 and waits == {(2, 0), (3, 1)}
