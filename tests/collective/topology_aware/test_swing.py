"""Swing on tori."""

from __future__ import annotations

import pytest

from tests.collective.topology_aware.times import times
from tweed.collective import build, topology
from tweed.collective.topology import Topology
from tweed.collective.topology_aware import swing


def test_partners_stay_near() -> None:
    """The distances of the paper, section 3."""
    [exchanges, _] = swing.flows(topology.ring(64))
    assert [exchange.distance * exchange.sign for exchange in exchanges] == [1, -1, 3, -5, 11, -21]


@pytest.mark.parametrize(("sides", "steps"), [((16,), 4), ((4, 4), 4), ((8, 8), 6), ((2, 4, 8), 6)])
def test_a_phase_takes_as_many_steps_as_there_are_doublings(sides: tuple[int, ...], steps: int) -> None:
    network = topology.torus(*sides)
    assert build("all_gather", "swing", network).cost(1).steps == steps
    assert build("all_reduce", "swing_latency", network).cost(1).steps == steps


@pytest.mark.parametrize(
    ("network", "most"),
    [(topology.torus(4, 4), 0.47), (topology.torus(8, 8), 0.55), (topology.hypercube(4), 0.47)],
)
def test_long_messages_come_near_the_link_bound(network: Topology, most: float) -> None:
    """0.469, 0.492 and 0.469; on 8 x 8 some of its ways share links."""
    assert times("swing", network) < most


@pytest.mark.parametrize("rival", ["ring", "ring_2d", "bucket", "halving_doubling", "multitree"])
def test_short_messages_are_faster_than_by_others(rival: str) -> None:
    network = topology.torus(8, 8)
    ours = times("swing_latency", network, numbytes=1 << 10)
    assert ours < 0.7 * times(rival, network, numbytes=1 << 10)
