"""Every builder on every network: proven, and on no links but the network's."""

from __future__ import annotations

import pytest

from tweed.collective import build, topology
from tweed.collective.chooser import fitting
from tweed.collective.topology import Topology
from tweed.simulate import run

NETWORKS = [
    topology.line(3),
    topology.ring(5),
    topology.mesh(2, 3),
    topology.torus(4, 4),
    topology.hypercube(3),
]


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter"])
def test_every_builder_is_proven_and_runs(collective: str, network: Topology) -> None:
    rows = fitting(collective, network)
    assert rows
    for row in rows:
        for pieces in row.pieces:
            schedule = row.schedule(collective, network, pieces)
            assert schedule.topology == network
            assert run(schedule, 1 << 16, network).seconds


STEPS = {"torus 4x4": 5, "torus 8x8": 17, "mesh 2x2": 2, "mesh 4x4": 8, "mesh 8x8": 32}


@pytest.mark.parametrize("name", STEPS)
def test_multitree_takes_the_steps_of_the_paper(name: str) -> None:
    kind, sides = name.split()
    network = getattr(topology, kind)(*(int(side) for side in sides.split("x")))
    schedule = build("all_gather", "multitree", network)
    assert schedule.cost(1).steps <= STEPS[name]
