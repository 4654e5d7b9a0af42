"""Pictures of networks: every node has its place, and the same network gives the same picture."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings

from tests.collective.topology.families import ALL, networks
from tweed.collective import build, topology
from tweed.collective.topology import Topology
from tweed.errors import UsageError
from tweed.report.layout import place
from tweed.report.plots import svg
from tweed.report.topology import draw, gallery

MORE = [
    topology.torus(3, 3, 3),
    topology.hypercube(4),
    topology.hypercube(5),
    topology.dragonfly(5, 2, 2),
    topology.sites([[4, 4], [3], [2, 2, 2], [5], [1]]),
    topology.fat_tree(8, 8, 8),
]


@pytest.mark.parametrize("network", [*ALL, *MORE], ids=lambda network: network.name)
def test_every_node_has_room(network: Topology) -> None:
    at = place(network).at
    assert sorted(at) == list(range(network.nodes))
    closest = min(abs(complex(*a) - complex(*b)) for a, b in combinations(at.values(), 2))
    assert closest > 0.2


@given(networks())
@hypothesis_settings(max_examples=10)
def test_any_network_has_a_place_for_every_node(network: Topology) -> None:
    at = place(network).at
    assert sorted(at) == list(range(network.nodes))
    assert len({(round(x, 3), round(y, 3)) for x, y in at.values()}) == network.nodes


def test_the_same_network_gives_the_same_picture() -> None:
    network = topology.sites([[2], [1]])
    picture = svg(draw(network))
    assert picture == svg(draw(network))
    for words in ("1 Gbit/s, 50 µs", "100 Mbit/s, 20 ms", "site 0", "sites 2 1"):
        assert words in picture


def test_several_networks_side_by_side() -> None:
    picture = svg(gallery([topology.ring(4), topology.star(3), topology.dgx1()], columns=2))
    for words in ("ring 4", "star 3", "DGX-1", "200 Gbit/s, 1 µs"):
        assert words in picture


def test_a_schedule_colours_the_links() -> None:
    network = topology.mesh(2, 2)
    load = build("all_reduce", "ring", network).cost(4_000_000).links
    picture = svg(draw(network, load))
    assert picture != svg(draw(network))
    assert "sent over each direction of a link (MB)" in picture


def test_around_a_torus_links_are_stubs() -> None:
    assert place(topology.torus(4, 4)).around == {
        pair
        for row in range(4)
        for a, b in ((4 * row, 4 * row + 3), (row, 12 + row))
        for pair in ((a, b), (b, a))
    }


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.raises(UsageError, match="a complete network has no links of its own to draw"):
        draw(Topology.complete(4, 1, 0.0))
    with pytest.raises(UsageError, match="a picture of 1024 nodes shows nothing; draw 600 at most"):
        draw(topology.torus(32, 32))
