"""Networks of namespaces that stand: who is in them, what they slow and lose, and that nothing is left."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tweed.collective import build
from tweed.errors import NoTestbed, UsageError
from tweed.testbed import Counters, LiveNetwork, Network, Ranks, findings, opened, run_ranks, sent_bytes
from tweed.testbed.names import HUB, INTERFACE, port
from tweed.testbed.star_network import Command

NUMEL = 250_000  # one megabyte

pytestmark = pytest.mark.usefixtures("namespaces")


def home(rank: int, size: int) -> dict[str, str]:
    names = ("TWEED_HOST", "TWEED_TESTBED", "GLOO_SOCKET_IFNAME")
    return {name: os.environ[name] for name in names} | {"namespace": os.readlink("/proc/self/ns/net")}


def interfaces(rank: int, size: int) -> set[str]:
    return {name for _, name in socket.if_nameindex()}


def sum_over_ranks(rank: int, size: int) -> float:
    total = torch.full((NUMEL,), float(rank))
    dist.all_reduce(total)
    dist.barrier()
    return float(total[-1])


def sum_by_ring(rank: int, size: int, store: Path) -> None:
    """One all-reduce over the engine, along a ring, by TCP."""
    from tweed.torch import Options

    place: dict[str, Any] = {"init_method": f"file://{store}", "rank": rank, "world_size": size}
    options = Options(transport="tcp", schedule={"all_reduce": "ring"})
    dist.init_process_group("tweed", pg_options=options, **place)
    dist.all_reduce(torch.ones(NUMEL))
    dist.barrier()
    dist.destroy_process_group()


def flood(rank: int, size: int) -> None:
    """Rank 0 sends ten times what its queue holds, without waiting."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)
        for _ in range(500 if rank == 0 else 0):
            door.sendto(bytes(1400), ("10.77.0.2", 5000))


def by_rank(values: Sequence[Any]) -> dict[str, Any]:
    return {f"rank {rank}": value for rank, value in enumerate(values)}


def sent(rank: int, size: int) -> int | None:
    return sent_bytes()


def congestion(rank: int, size: int) -> str:
    """The congestion control of a connection to the next rank's address."""
    here, there = (f"10.77.0.{place % size + 1}" for place in (rank, rank + 1))
    with socket.create_server((here, 5000)):
        dist.barrier()
        with socket.create_connection((there, 5000)) as connection:
            name = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            dist.barrier()
    return name.rstrip(b"\0").decode()


def test_each_rank_lives_in_a_namespace_of_its_own() -> None:
    with opened(Network(), 2) as bed, Ranks(home, 2, bed=bed) as ranks:
        homes = ranks.join(60)
        assert [found["TWEED_HOST"] for found in homes] == [host.address for host in bed.hosts]
        assert [found["TWEED_TESTBED"] for found in homes] == [found["namespace"] for found in homes]
    assert len({found["namespace"] for found in homes} | {os.readlink("/proc/self/ns/net")}) == 3
    assert {found["GLOO_SOCKET_IFNAME"] for found in homes} == {"tweed0"}


def test_a_rank_has_its_link_and_nothing_of_the_hosts() -> None:
    assert run_ranks(interfaces, 2, network=Network()) == [{"lo", "tweed0"}] * 2


@pytest.mark.parametrize("backend", ["tweed", "gloo"])
def test_collectives_cross_the_links(backend: str) -> None:
    with opened(Network(), 3) as bed, Ranks(sum_over_ranks, 3, backend=backend, bed=bed) as ranks:
        assert ranks.join(60) == [3.0] * 3
        assert all(counted.sent_bytes > 4 / 3 * 4 * NUMEL for counted in bed.counters())


@pytest.mark.parametrize("name", ["cubic", "reno"])
def test_the_congestion_control_is_the_networks(name: str) -> None:
    assert run_ranks(congestion, 2, backend="gloo", network=Network(congestion=name)) == [name] * 2


def test_a_congestion_control_that_is_not_there_is_named() -> None:
    with (
        pytest.raises(NoTestbed, match=r"no congestion control 'yelling' here; there are .*cubic"),
        opened(Network(congestion="yelling"), 1),
    ):
        pass


def test_a_bed_for_nobody_is_refused() -> None:
    with pytest.raises(UsageError, match="0 ranks"), opened(Network(), 0):
        pass


@pytest.mark.parametrize("place", [HUB, 0, 1])
def test_the_kernel_has_the_rate_at_both_ends_of_each_link(place: int) -> None:
    with opened(Network(rate_bits=8e6), 2) as bed:
        command = Command(place, ("tc", "-j", "qdisc", "show"))
        found = json.loads(bed._namespaces.run(command))
    ends = [port(0), port(1)] if place == HUB else [INTERFACE]
    rates = {entry["dev"]: entry["options"]["rate"] for entry in found if entry["kind"] == "tbf"}
    assert rates == dict.fromkeys(ends, 1_000_000)  # bytes per second


def test_a_flood_finds_the_queue_full() -> None:
    with opened(Network(rate_bits=8e6), 2) as bed, Ranks(flood, 2, bed=bed) as ranks:
        ranks.join(60)
        assert bed.counters()[0].overflowed_packets > 0


def test_packets_are_lost_as_often_as_asked_for() -> None:
    with opened(Network(loss=0.05), 2) as bed, Ranks(sum_over_ranks, 2, backend="gloo", bed=bed) as ranks:
        ranks.join(60)
        total = sum(bed.counters(), Counters())
    assert 0.025 < total.lost_packets / total.sent_packets < 0.1
    # Nothing else got lost, and nothing came from elsewhere. ARP's questions reach every rank.
    assert total.received_packets == pytest.approx(total.sent_packets - total.lost_packets, abs=20)


def test_the_links_carry_what_the_schedule_says(tmp_path: Path) -> None:
    with opened(Network(), 3) as bed, Ranks(sum_by_ring, 3, tmp_path / "store", bed=bed) as ranks:
        ranks.join(60)
        counted = by_rank(bed.counters())
    schedule = build("all_reduce", "ring", 3)
    assert findings(by_rank(schedule.cost(4 * NUMEL).sent), counted) == []


def test_bytes_that_went_round_the_links_are_found(tmp_path: Path) -> None:
    with opened(Network(), 3) as bed:
        run_ranks(sum_by_ring, 3, tmp_path / "store")  # on the host's own loopback
        found = findings(
            by_rank(build("all_reduce", "ring", 3).cost(4 * NUMEL).sent), by_rank(bed.counters())
        )
    assert len(found) == 3
    assert all("went round" in finding for finding in found)


def test_two_testbeds_do_not_meet() -> None:
    with opened(Network(), 2) as one, opened(Network(), 2) as other:
        idle = other.counters()
        with Ranks(sum_over_ranks, 2, backend="gloo", bed=one) as ranks:
            assert ranks.join(60) == [1.0] * 2
        assert sum(other.counters(), Counters()).sent_bytes - sum(idle, Counters()).sent_bytes < 1000
        with Ranks(sum_over_ranks, 2, backend="gloo", bed=one) as a, Ranks(home, 2, bed=other) as b:
            assert a.join(60) == [1.0] * 2
            spaces = {found["namespace"] for found in b.join(60)}
        assert spaces == {host.namespace for host in other.hosts}
        assert spaces.isdisjoint(host.namespace for host in one.hosts)


def test_groups_one_after_the_other_share_a_bed() -> None:
    with opened(Network(), 2) as bed:
        for _ in range(2):
            with Ranks(sum_over_ranks, 2, backend="gloo", bed=bed) as ranks:
                assert ranks.join(60) == [1.0] * 2


def test_a_rank_knows_what_its_link_has_sent() -> None:
    assert all(count is not None and count >= 0 for count in run_ranks(sent, 2, network=Network()))
    assert run_ranks(sent, 1) == [None]


def test_a_program_runs_in_a_ranks_namespace() -> None:
    with opened(Network(), 2) as bed:
        words = bed.command(1, "ip", "-4", "-brief", "addr", "show", "tweed0")
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "10.77.0.2/24" in said


def bed_of_one() -> LiveNetwork:
    with opened(Network(), 1) as bed:
        return bed


def test_more_ranks_than_hosts_are_refused() -> None:
    with pytest.raises(UsageError, match="2 ranks in a testbed that was opened for 1"):
        Ranks(home, 2, bed=bed_of_one())


def test_a_bed_that_is_gone_says_so() -> None:
    with (
        pytest.raises(Exception, match="testbed of this rank is gone"),
        Ranks(home, 1, bed=bed_of_one()) as r,
    ):
        r.join(60)
