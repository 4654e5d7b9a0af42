"""Rings on grids: their times beside the formulas, and what they refuse."""

from __future__ import annotations

import pytest

from tests.collective.topology_aware.times import LONG, times
from tweed.collective import build, topology
from tweed.collective.topology import Topology
from tweed.errors import UsageError


@pytest.mark.parametrize("network", [topology.torus(4, 4), topology.torus(8, 8), topology.mesh(8, 8)])
def test_a_ring_crosses_every_link_of_its_cycle_alike(network: Topology) -> None:
    assert times("ring", network) == pytest.approx(2 * (1 - 1 / network.ranks), rel=0.01)


@pytest.mark.parametrize(
    ("network", "factor"),
    [(topology.torus(4, 4), 1), (topology.torus(8, 8), 1), (topology.mesh(4, 4), 2)],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_2d_ring_takes_what_the_formula_says(network: Topology, factor: int) -> None:
    side = network.sides[0]
    assert times("ring_2d", network) == pytest.approx(factor * (side - 1) / side, rel=0.01)


@pytest.mark.parametrize("side", [3, 4, 8])
def test_flows_of_a_2d_ring_do_not_get_ahead(side: int) -> None:
    """In whole chunks; with what is ready first it took 0.94 and 1.03 on 4x4 and 8x8."""
    took = times("ring_2d", topology.torus(side, side), slice_bytes=LONG)
    assert took == pytest.approx((side - 1) / side, rel=0.01)


@pytest.mark.parametrize("sides", [(4, 4), (8, 8), (3, 3, 3), (2, 2, 2, 2), (6,)])
def test_buckets_reach_the_link_bound_of_a_torus(sides: tuple[int, ...]) -> None:
    network = topology.torus(*sides)
    bound = 2 * (network.ranks - 1) / len(network.links)
    assert times("bucket", network) == pytest.approx(bound, rel=0.01)
    assert times("bucket", network, "all_gather") == pytest.approx(bound / 2, rel=0.01)
    assert times("bucket", network, "reduce_scatter") == pytest.approx(bound / 2, rel=0.01)


def test_buckets_weigh_uneven_sides() -> None:
    """One tree per dimension would take 35 / 31 of the bound."""
    network = topology.torus(4, 8)
    assert times("bucket", network) < 1.02 * 2 * (network.ranks - 1) / len(network.links)


def test_on_a_mesh_both_phases_of_buckets_overlap() -> None:
    """The link bound is 0.625; one phase after the other takes 0.9375."""
    assert times("bucket", topology.mesh(4, 4), slice_bytes=LONG, pieces=8) < 0.675


@pytest.mark.parametrize("side", [4, 8])
def test_buckets_gather_on_a_mesh_as_fast_as_its_corners_can(side: int) -> None:
    network = topology.mesh(side, side)
    assert times("bucket", network, "all_gather") == pytest.approx((1 - 1 / network.ranks) / 2, rel=0.01)


def test_a_grid_that_lacks_a_link_is_refused() -> None:
    whole = topology.torus(3, 3)
    links = [link for link in whole.links if link[:2] != (4, 5)]
    network = Topology(9, links, sides=whole.sides, wraps=whole.wraps)
    with pytest.raises(UsageError, match="ranks 4 and 5 are not linked both ways"):
        build("all_reduce", "bucket", network)


BOTH_WAYS = [topology.torus(4, 4), topology.mesh(8, 8), topology.random_regular(16, 3, 1)]


@pytest.mark.parametrize("network", BOTH_WAYS)
def test_a_ring_in_both_directions_takes_half_as_long(network: Topology) -> None:
    assert times("ring_bidirectional", network) == pytest.approx(1 - 1 / network.ranks, rel=0.01)


@pytest.mark.parametrize("side", [3, 5, 7])
def test_on_an_odd_mesh_a_corner_hangs_on_the_ring(side: int) -> None:
    assert times("ring_bidirectional", topology.mesh(side, side), slice_bytes=LONG) < 1.01
