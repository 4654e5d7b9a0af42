"""Ring orders follow the links of the network."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tweed.collective import topology
from tweed.collective.topology import Topology
from tweed.collective.topology_aware import cycles

CYCLES = [
    topology.ring(5),
    topology.mesh(2, 2),
    topology.mesh(4, 3),
    topology.mesh(3, 4),
    topology.mesh(3, 3, 2),
    topology.torus(3, 3),
    topology.torus(5, 3),
    topology.torus(3, 3, 3),
    topology.torus(4, 5),
    topology.hypercube(4),
    topology.dgx1(),
    topology.random_regular(64, 4, seed=1),
]


@pytest.mark.parametrize("network", CYCLES, ids=lambda network: network.name)
def test_a_cycle_visits_every_rank_once_over_links(network: Topology) -> None:
    cycle = cycles.cycle(network)
    assert sorted(cycle) == list(range(network.ranks))
    assert all(network.has_link(a, b) and network.has_link(b, a) for a, b in pairwise((*cycle, cycle[0])))


@pytest.mark.parametrize("network", [topology.line(4), topology.mesh(3, 3), topology.mesh(3, 3, 3)])
def test_where_there_is_no_cycle_neighbours_still_follow_each_other(network: Topology) -> None:
    assert not cycles.cycle(network)
    order = cycles.order(network)
    assert sorted(order) == list(range(network.ranks))
    assert all(network.has_link(a, b) for a, b in pairwise(order))


@pytest.mark.parametrize("sides", [(3, 3), (3, 5), (7, 5), (3, 3, 3), (1, 3, 5)])
def test_without_its_corner_an_odd_mesh_has_a_cycle(sides: tuple[int, ...]) -> None:
    network = topology.mesh(*sides)
    cycle = cycles.cycle_but_one(network)
    assert sorted(cycle) == list(range(1, network.ranks))
    assert all(network.has_link(a, b) for a, b in pairwise((*cycle, cycle[0])))


def test_only_odd_meshes_leave_out_a_corner() -> None:
    assert not any(map(cycles.cycle_but_one, (topology.mesh(4, 3), topology.line(3), topology.torus(3, 3))))


def test_hosts_of_one_switch_follow_each_other() -> None:
    order = cycles.order(topology.fat_tree(4, 4, 2))
    assert sum(a // 4 != b // 4 for a, b in pairwise(order)) == 3


def test_the_wider_links_are_taken_first() -> None:
    """Ranks 0, 2, 4 and 1, 3, 5 are two sites; every rank reaches every other."""
    pairs = [(a, b) for a in range(6) for b in range(6) if a != b]
    links = [(a, b, 1000 if (a - b) % 2 == 0 else 10, 0.0) for a, b in pairs]
    order = cycles.order(Topology(6, links))
    assert sum((a - b) % 2 for a, b in pairwise((*order, order[0]))) == 2
