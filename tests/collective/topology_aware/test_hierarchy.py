"""Hierarchy: slow links are crossed once by every byte, whatever the groups."""

from __future__ import annotations

import pytest

from tweed.collective import build, topology
from tweed.collective.topology import Topology, Wire
from tweed.collective.topology_aware.hierarchy import grouped
from tweed.simulate import run

NUMBYTES = 1 << 20
SLOW, SLOWER = Wire(12_500_000, 10e-3), Wire(5_000_000, 30e-3)
NETWORKS = [
    topology.sites([[4], [4]]),
    topology.sites([[3], [5]]),
    topology.sites([[2, 2], [3]], wide={(0, 1): SLOW, (1, 0): SLOWER}),
    topology.sites([[2, 2], [3], [1, 5]]),
    topology.sites([[7], [1]]),
]


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce"])
def test_it_makes_every_collective(collective: str, network: Topology) -> None:
    for pieces in (1, 3):
        assert run(build(collective, "hierarchy", network, pieces), NUMBYTES, network).seconds


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_each_site_sends_the_buffer_once_over_its_links(network: Topology) -> None:
    """With two sites, whose owners swap; with more, twice what the others of `n` sites own."""
    carried = build("all_reduce", "hierarchy", network).cost(NUMBYTES).links
    sent: dict[int, int] = {}
    for a, b in [(a, b) for a, b, _, late_s, _ in network.links if late_s >= 10e-3]:  # between sites
        sent[a] = sent.get(a, 0) + carried[a, b]
    if len(sent) == 2:
        assert list(sent.values()) == pytest.approx([NUMBYTES, NUMBYTES])
    else:
        assert sum(sent.values()) == pytest.approx(2 * (len(sent) - 1) * NUMBYTES)


def test_two_sites_take_one_crossing_and_little_more_than_the_slow_link_needs() -> None:
    network = NETWORKS[0]
    schedule = build("all_reduce", "hierarchy", network)
    short, long = (run(schedule, size, network, piece=1 << 18, window=16).seconds for size in (1, 25 << 20))
    assert short is not None
    assert long is not None
    assert 20e-3 < short < 21e-3
    assert long < 1.08 * (25 << 20) / 12_500_000 + 20e-3


def test_levels_that_divide_nothing_are_left_out() -> None:
    top = grouped(topology.sites([[4], [4]]))
    assert top.height == 2
    assert [part.ranks for part in top.parts] == [(0, 1, 2, 3), (4, 5, 6, 7)]
