"""Every builder on every network: proven, and on no links but the network's."""

from __future__ import annotations

import pytest

from tweed.collective import build, topology
from tweed.collective.chooser import fitting
from tweed.collective.topology import Topology
from tweed.errors import UsageError
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


_POWERS = [(each, "torus whose sides are powers of two") for each in (topology.mesh(4, 4), topology.line(4))]
_MESH = "mesh with two dimensions of at least three"
REFUSED = {
    "bucket": [
        (topology.dgx1(), "needs a grid"),
        (topology.torus(4, 4).without(set(), {(0, 1)}), "needs a grid"),
    ],
    "exact": [
        (topology.torus(3, 3), "at most 8 ranks"),
        (topology.star(4), "links between ranks"),
        (Topology.complete(4, 10, 0.0), "links between ranks"),
    ],
    "hdrm": [
        (topology.fat_tree(4, 4, 4), "two equal layers"),
        (topology.torus(4, 4), "two equal layers"),
        (topology.bigraph(4, 8).without(set(), {(32, 36), (36, 32)}), "two equal layers"),
        (topology.bigraph(3, 8), "24 is no power of two"),
    ],
    "hierarchy": [
        (topology.torus(4, 4), "it needs places"),
        (topology.sites([[4]]), "all ranks are in one place"),
        (topology.sites([[1], [1]]), "one of them with several ranks"),
    ],
    "ring_2d": [(topology.torus(4, 4, 4), "two dimensions"), (topology.star(4), "two dimensions")],
    "ring_bidirectional": [
        (topology.line(4), "none was found"),
        (topology.fat_tree(2, 2, 1), "none was found"),
    ],
    "swing": [(topology.torus(6, 6), "torus whose sides are powers of two"), *_POWERS],
    "swing_latency": _POWERS,
    "three_tree": [
        (each, _MESH)
        for each in (topology.mesh(2, 8), topology.torus(4, 4), topology.line(4), topology.dgx1())
    ],
}


@pytest.mark.parametrize(
    ("name", "network", "why"), [(name, *case) for name, cases in REFUSED.items() for case in cases]
)
def test_other_networks_are_refused(name: str, network: Topology, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        build("all_reduce", name, network)
