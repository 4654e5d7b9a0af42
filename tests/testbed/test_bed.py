"""Networks of namespaces that stand: who is in them, what they slow and lose, and that nothing is left."""

from __future__ import annotations

import os
import socket

import pytest
import torch
import torch.distributed as dist

from tweed.errors import NoTestbed, UsageError
from tweed.testbed import Bed, Network, Ranks, opened, run_ranks

NUMEL = 250_000  # one megabyte


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


def bed_of_one() -> Bed:
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
