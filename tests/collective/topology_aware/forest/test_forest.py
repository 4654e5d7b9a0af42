"""Forest: trees that use every link as often as the bottleneck cut allows, and no more."""

from __future__ import annotations

import pytest

from tests.collective.topology.families import ALL
from tweed._core import Schedule
from tweed.collective import build, topology
from tweed.collective.cuts import bottleneck
from tweed.collective.topology import Topology

NUMBYTES = 1 << 40
LOSS = 1.02


def busiest(schedule: Schedule, network: Topology) -> float:
    """Seconds that the busiest link needs for its bytes."""
    wires = {(a, b): bandwidth * count for a, b, bandwidth, _, count in network.links}
    return max(many / wires[link] for link, many in schedule.cost(NUMBYTES).links.items())


def bound(network: Topology) -> float:
    return bottleneck(network).seconds(NUMBYTES, network.ranks)


def named(network: Topology) -> str:
    return network.name


@pytest.mark.parametrize("network", ALL, ids=named)
def test_an_all_gather_reaches_the_cut_bound(network: Topology) -> None:
    schedule = build("all_gather", "forest", network)
    assert busiest(schedule, network) <= LOSS * bound(network)


@pytest.mark.parametrize("network", ALL, ids=named)
def test_a_reduce_scatter_reaches_the_cut_bound(network: Topology) -> None:
    schedule = build("reduce_scatter", "forest", network)
    assert busiest(schedule, network) <= LOSS * bound(network.reversed())


@pytest.mark.parametrize("network", ALL, ids=named)
def test_an_all_reduce_reaches_both_bounds_together(network: Topology) -> None:
    schedule = build("all_reduce", "forest", network)
    assert busiest(schedule, network) <= LOSS * (bound(network) + bound(network.reversed()))


@pytest.mark.parametrize("network", [topology.fat_tree(4, 4, 4), topology.dragonfly(4, 3, 1)], ids=named)
def test_no_way_passes_a_switch_twice(network: Topology) -> None:
    for send in build("all_gather", "forest", network).sends:
        assert len(set(send.route)) == len(send.route)


@pytest.mark.parametrize(
    ("network", "least"),
    [
        (topology.mesh(4, 4), 0.625),
        (topology.mesh(5, 5), 0.6),
        (topology.torus(4, 4), 0.46875),
        (topology.ring(5), 1.0 * 4 / 5),
        (topology.line(4), 1.0),
    ],
    ids=["mesh 4x4", "mesh 5x5", "torus 4x4", "ring 5", "line 4"],
)
def test_an_all_reduce_over_even_links_reaches_the_link_bound(network: Topology, least: float) -> None:
    """In units of D/b: each of the other ranks' parts goes up once and down once, over all links."""
    schedule = build("all_reduce", "forest", network)
    assert busiest(schedule, network) * topology.GIGABIT.bandwidth / NUMBYTES <= LOSS * least
