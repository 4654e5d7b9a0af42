"""The families of networks: who is linked with whom."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.collective.topology.families import ALL, FAST, SLOW
from tweed.collective import topology
from tweed.collective.topology import Topology, Wire
from tweed.errors import UsageError


def pairs(network: Topology) -> set[tuple[int, int]]:
    return {(src, dst) for src, dst, *_ in network.links}


@pytest.mark.parametrize("network", ALL, ids=lambda network: network.name)
def test_every_network_has_a_name_and_ways_back(network: Topology) -> None:
    links = pairs(network)
    assert network.name
    assert links == {(dst, src) for src, dst in links}
    assert all(src != dst for src, dst in links)
    assert network.nodes == len({node for link in links for node in link})
    assert len(network.places) in (0, network.ranks)


SIZES = {
    "star": (topology.star(5), 5, 6, 10),
    "fat-tree of 64": (topology.fat_tree(8, 8, 8), 64, 80, 256),
    "BiGraph of 32": (topology.bigraph(4, 8), 32, 40, 96),
    "BiGraph of 64": (topology.bigraph(4, 16), 64, 80, 256),
    "DGX-1": (topology.dgx1(), 8, 8, 32),
    "DGX-2": (topology.dgx2(), 16, 28, 204),
    "dragonfly": (topology.dragonfly(9, 4, 2), 72, 108, 144 + 9 * 12 + 72),
    "random": (topology.random_regular(20, 3, seed=7), 20, 20, 60),
    "sites": (topology.sites([[4], [4]]), 8, 10, 18),
    "sites with racks": (topology.sites([[4, 4], [3]]), 11, 15, 22 + 4 + 2),
}


@pytest.mark.parametrize("name", SIZES)
def test_ranks_nodes_and_links(name: str) -> None:
    network, ranks, nodes, links = SIZES[name]
    assert (network.ranks, network.nodes, len(network.links)) == (ranks, nodes, links)


def test_a_dgx1_has_six_links_at_every_gpu() -> None:
    links: Counter[int] = Counter()
    for src, _, _, _, count in topology.dgx1().links:
        links[src] += count
    assert set(links.values()) == {6}


def test_layers_of_a_bigraph_are_linked_all_to_all_and_not_inside() -> None:
    links = pairs(topology.bigraph(4, 8))
    low, high = set(range(32, 36)), set(range(36, 40))
    assert {(a, b) for a in low for b in high} <= links
    assert not any({a, b} <= layer for a, b in links for layer in (low, high))


@given(st.integers(2, 9), st.integers(1, 5), st.integers(1, 2))
def test_two_groups_of_a_dragonfly_have_one_wire_and_routers_share_them(
    groups: int, routers: int, hosts: int
) -> None:
    network = topology.dragonfly(groups, routers, hosts)

    def group(router: int) -> int:
        return (router - network.ranks) // routers

    far = [(a, b) for a, b in pairs(network) if min(a, b) >= network.ranks and group(a) != group(b)]
    assert Counter((group(a), group(b)) for a, b in far) == {
        (a, b): 1 for a in range(groups) for b in range(groups) if a != b
    }
    assert max(Counter(a for a, _ in far).values()) == -(-(groups - 1) // routers)


@given(st.integers(2, 30), st.integers(1, 6), st.integers(0, 2**32))
def test_random_networks_are_regular_connected_and_repeat(ranks: int, degree: int, seed: int) -> None:
    degree = min(degree, ranks - 1)
    if ranks * degree % 2 or (degree == 1 and ranks > 2):
        degree += 1 if degree + 1 < ranks else -1
    network = topology.random_regular(ranks, degree, seed)
    assert network == topology.random_regular(ranks, degree, seed)
    assert set(Counter(src for src, _ in pairs(network)).values()) == {degree}
    reached = {0}
    while more := {dst for src, dst in pairs(network) if src in reached} - reached:
        reached |= more
    assert len(reached) == ranks


def test_sites_are_uneven_and_know_their_places() -> None:
    network = topology.sites(
        [[2, 1], [3]], host=(Wire(1, 0.1), Wire(2, 0.2)), wide={(0, 1): FAST, (1, 0): SLOW}
    )
    wires = {(src, dst): Wire(*rest) for src, dst, *rest in network.links}
    assert wires[0, 6] == Wire(1, 0.1)
    assert wires[6, 0] == Wire(2, 0.2)
    assert (wires[8, 9], wires[9, 8]) == (FAST, SLOW)
    assert network.places == [[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0], [1, 0, 1], [1, 0, 2]]


def test_a_switch_of_little_capacity() -> None:
    assert topology.star(4, capacity=9).capacities == {4: 9}


WRONG = {
    "ranks is 1; give 2 or more": lambda: topology.star(1),
    "spines is 0; give 1 or more": lambda: topology.fat_tree(2, 2, 0),
    "5 switches do not make two equal layers; give an even number": lambda: topology.bigraph(2, 5),
    "groups is 1; give 2 or more": lambda: topology.dragonfly(1, 2, 2),
    "9 ranks cannot have 3 neighbours each: give a degree from 2 to 8, an even one, as the number of ranks "
    "is odd": lambda: topology.random_regular(9, 3, 0),
    "racks are [[2], []]; give each site a rack or more, and each rack a host or more": lambda: (
        topology.sites([[2], []])
    ),
    "wide has a link from site 0 to site 2; sites are 0 to 1": lambda: topology.sites(
        [[2], [2]], wide={(0, 2): FAST}
    ),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_cannot_be_built_is_said(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        WRONG[text]()
    assert str(raised.value) == text
