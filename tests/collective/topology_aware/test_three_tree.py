"""Three trees on a mesh."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.collective.topology_aware.times import LONG, times
from tweed.collective import topology
from tweed.collective.topology import Topology
from tweed.collective.topology_aware import three_tree

MESHES = [topology.mesh(*sides) for sides in ((3, 3), (3, 6), (4, 4), (5, 4), (8, 8), (9, 9), (1, 5, 3))]


@pytest.mark.parametrize("network", MESHES, ids=lambda network: network.name)
def test_no_link_is_in_more_than_two_trees(network: Topology) -> None:
    trees = three_tree.grow(network)
    assert [len(tree.edges) for tree in trees] == [network.ranks - 1] * 3
    links = Counter(frozenset((edge.parent, edge.child)) for tree in trees for edge in tree.edges)
    assert max(links.values()) == 2


@pytest.mark.parametrize("side", [4, 8, 9])
def test_they_are_half_as_high_as_trees_from_corners(side: int) -> None:
    heights = [tree.edges[-1].step + 1 for tree in three_tree.grow(topology.mesh(side, side))]
    assert max(heights) <= side + 1


@pytest.mark.parametrize("side", [4, 8, 9])
def test_a_long_all_reduce_takes_two_thirds(side: int) -> None:
    """The public best on meshes is 0.675 D / b, at 512 MiB and more."""
    assert times("three_tree", topology.mesh(side, side), slice_bytes=1 << 15) <= 0.685


def test_pieces_follow_each_other() -> None:
    network = topology.mesh(8, 8)
    whole, cut = (
        times("three_tree", network, numbytes=1 << 20, slice_bytes=LONG, pieces=pieces) for pieces in (1, 16)
    )
    assert cut < whole / 4
