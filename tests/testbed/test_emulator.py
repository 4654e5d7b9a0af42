"""Networks with delay that stand. Times are only compared where a busy machine cannot make them wrong."""

from __future__ import annotations

import socket
import statistics
import time

import pytest
import torch
import torch.distributed as dist

from tweed.testbed import Link, Network, Ranks, opened, run_ranks

pytestmark = pytest.mark.usefixtures("namespaces")

PORT = 5001
ECHOES = 20


def answer(rank: int, size: int) -> None:
    """Gives back what it is sent, until it is ended."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.bind(("", PORT))
        dist.barrier()
        while True:
            data, there = door.recvfrom(2000)
            door.sendto(data, there)


def echo_times_ms(rank: int, size: int) -> list[float]:
    """Round trips to rank 0, which answers."""
    if rank == 0:
        answer(rank, size)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.connect(("10.77.0.1", PORT))
        dist.barrier()
        return [echo_ms(door) for _ in range(ECHOES)]


def echo_ms(door: socket.socket) -> float:
    began = time.perf_counter()
    door.send(b"echo")
    door.recv(2000)
    return 1000 * (time.perf_counter() - began)


def echoes(network: Network) -> float:
    """Median round trip in ms between ranks 0 and 1."""
    with opened(network, 2) as bed, Ranks(echo_times_ms, 2, backend="gloo", bed=bed) as ranks:
        (ended,) = ranks.poll(60)
        return statistics.median(ended.value)


def test_a_round_trip_takes_twice_the_delay() -> None:
    assert 40 <= echoes(Network(delay_ms=20)) < 120


def test_a_round_trip_is_the_sum_of_both_ends() -> None:
    assert 70 <= echoes(Network(delay_ms=20, hosts={0: Link(delay_ms=50)})) < 210


def sum_over_ranks(rank: int, size: int) -> float:
    total = torch.full((50_000,), float(rank))
    dist.all_reduce(total)
    dist.barrier()
    return float(total[-1])


@pytest.mark.parametrize("backend", ["tweed", "gloo"])
def test_collectives_cross_a_long_link(backend: str) -> None:
    network = Network(rate_bits=1e9, rtt_ms=10, loss=0.001)
    assert run_ranks(sum_over_ranks, 3, backend=backend, network=network) == [3.0] * 3
