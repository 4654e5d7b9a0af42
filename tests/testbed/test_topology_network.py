"""Networks whose links are those of a topology: who has which links, what goes over them, what is left."""

from __future__ import annotations

import os
import socket

import pytest
import torch
import torch.distributed as dist

from tests.testbed.test_namespaces import living_in
from tweed.collective import topology
from tweed.collective.topology import Topology, Wire
from tweed.errors import UsageError
from tweed.testbed import LiveTopologyNetwork, Network, Ranks, linked, opened
from tweed.testbed.names import HUB, toward
from tweed.testbed.topology_network import TopologyNetwork, commands

NUMEL = 50_000
FAST, LATE = Wire(12_500_000, 50e-6), Wire(12_500_000, 20e-3)


def sum_over_ranks(rank: int, size: int) -> tuple[float, set[str]]:
    """One all-reduce; and the interfaces that this rank has."""
    total = torch.full((NUMEL,), float(rank))
    dist.all_reduce(total)
    return float(total[-1]), {name for _, name in socket.if_nameindex()}


def test_links_are_built_as_the_topology_says() -> None:
    network = TopologyNetwork(Topology(2, [(0, 1, 1_000_000, 2e-3), (1, 0, 3_000_000, 1e-6)]))
    text = [" ".join((*command.words, command.text)) for command in commands(network, [7, 8], "reno")]
    assert [line for line in text if "rate 8000000bit" in line and "dev to1" in line]
    assert [line for line in text if "rate 24000000bit" in line and "dev to0" in line]
    assert [line for line in text if "congctl reno" in line]
    assert network.ports == {(0, 1): 0, (1, 0): 1}, "a link is in the hub if one of its directions is late"


def test_ways_between_ranks_are_the_fewest_links() -> None:
    network = TopologyNetwork(topology.mesh(2, 2, wire=FAST))
    assert not network.ports
    built = {command.place: command.text for command in commands(network, [1, 2, 3, 4], "cubic")}
    assert HUB not in built
    text = "".join(command.text for command in commands(network, [1, 2, 3, 4], "cubic") if command.place == 0)
    assert f"route add 10.77.0.4/32 via 10.77.0.2 dev {toward(1)} onlink" in text


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (Topology(2, [(0, 1, 1000, 0.0)]), "the link from 0 to 1 has no way back"),
        (Topology.complete(4, 1000, 0.0), "a flat network has no links of its own"),
        (topology.line(300), "room for 253 nodes, not 300"),
        (topology.line(200, wire=LATE), "can delay 126 links, not 199"),
    ],
)
def test_what_cannot_be_built_is_refused(network: Topology, words: str) -> None:
    with pytest.raises(UsageError, match=words), linked(network):
        pass


def test_a_star_is_a_topology_with_a_switch() -> None:
    network = Network.parse("rate=100mbit,delay=20ms,1.up.rate=10mbit")
    star = network.topology(2)
    assert (star.ranks, star.nodes) == (2, 3)
    up, slow, down = (12_500_000, 0.02, 1), (1_250_000, 0.02, 1), (12_500_000, 0.0, 1)
    assert set(star.links) == {(0, 2, *up), (1, 2, *slow), (2, 0, *down), (2, 1, *down)}
    assert len(TopologyNetwork(star).ports) == 4, "it can be built like any other"
    with pytest.raises(UsageError, match="the link of rank 0 has no rate"):
        Network().topology(2)


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("network", [Network(rate_bits=1e8), topology.star(2, FAST)], ids=["bridge", "nodes"])
def test_a_star_is_opened_either_way(network: Network | Topology) -> None:
    place = opened(network, 2) if isinstance(network, Network) else opened(network)
    with place as bed, Ranks(sum_over_ranks, 2, backend="gloo", bed=bed) as ranks:
        assert [total for total, _ in ranks.join(60)] == [1.0] * 2
        assert (bed.size, bed.topology.nodes) == (2, 3)


@pytest.mark.usefixtures("namespaces")
def test_ranks_have_their_neighbours_and_no_others() -> None:
    network = topology.line(3, wire=FAST)
    with linked(network) as bed:
        with Ranks(sum_over_ranks, 3, backend="gloo", bed=bed) as ranks:
            found = ranks.join(60)
        assert [total for total, _ in found] == [3.0] * 3
        neighbours = [{name for name in names if name.startswith("to")} for _, names in found]
        assert neighbours == [{"to1"}, {"to0", "to2"}, {"to1"}]
        assert_carried(bed, NUMEL * 4)


@pytest.mark.usefixtures("namespaces")
def test_the_engine_runs_through_a_switch() -> None:
    with linked(topology.star(3, FAST)) as bed:
        with Ranks(sum_over_ranks, 3, backend="tweed", bed=bed) as ranks:
            assert [total for total, _ in ranks.join(60)] == [3.0] * 3
        assert bed.size == 3
        assert_carried(bed, NUMEL * 4)


@pytest.mark.usefixtures("namespaces")
def test_a_late_link_is_late_and_nothing_is_left() -> None:
    with linked(topology.line(2, wire=LATE)) as bed:
        spaces = {os.readlink(f"/proc/{bed._namespaces.holder(place)}/ns/net") for place in (HUB, 0, 1)}
        assert len(living_in(spaces)) == 4, "three that hold a namespace, and the emulator"
        with Ranks(sum_over_ranks, 2, backend="gloo", bed=bed) as ranks:
            assert [total for total, _ in ranks.join(60)] == [1.0] * 2
        assert bed._emulator is not None
        assert bed._emulator.report().packets > 2 * NUMEL * 4 / 1500, "packet by packet through the emulator"
    assert living_in(spaces) == []


def assert_carried(bed: LiveTopologyNetwork, least: int) -> None:
    """Every link has carried something, and all together at least as much as an all-reduce must."""
    sent = {pair: counted.sent_bytes for pair, counted in bed.carried().items()}
    assert all(sent.values())
    assert sum(sent.values()) > least
