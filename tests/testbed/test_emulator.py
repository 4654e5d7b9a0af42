"""Networks with delay that stand. Times are only compared where a busy machine cannot make them wrong."""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.testbed.test_namespaces import living_in
from tests.testbed.test_ranks import gone, words_of_killed
from tweed.errors import NoTestbed, UsageError
from tweed.testbed import Link, LiveNetwork, Network, Ranks, opened, run_ranks
from tweed.testbed.emulator import Report

pytestmark = pytest.mark.usefixtures("namespaces")

PORT = 5001
ECHOES = 20
DATAGRAMS = 3000
AT_ONCE = 100  # more might not find room at the receiver
ENDS = 50  # so many that not all get lost
OTHERS = 40  # packets that are none of these


def say_back(door: socket.socket) -> None:
    """Gives back what it is sent, until this process is ended."""
    while True:
        data, there = door.recvfrom(2000)
        door.sendto(data, there)


def echo_ms(door: socket.socket) -> float:
    """How long an answer takes; questions are repeated where they get lost."""
    while True:
        began = time.perf_counter()
        door.send(b"echo")
        try:
            door.recv(2000)
        except TimeoutError:
            continue
        return 1000 * (time.perf_counter() - began)


def echo_times_ms(rank: int, size: int) -> list[float]:
    """Round trips to rank 0, which answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        if rank == 0:
            door.bind(("", PORT))
            dist.barrier()
            say_back(door)
        door.connect(("10.77.0.1", PORT))
        dist.barrier()
        return [echo_ms(door) for _ in range(ECHOES)]


def median_echo_ms(bed: LiveNetwork) -> float:
    with Ranks(echo_times_ms, 2, backend="gloo", bed=bed) as ranks:
        (ended,) = ranks.poll(60)
        return statistics.median(ended.value)


def test_a_round_trip_is_the_sum_of_both_delays() -> None:
    with opened(Network(delay_ms=20, hosts={0: Link(delay_ms=40)}), 2) as bed:
        assert 60 <= median_echo_ms(bed) < 240


def test_delays_change_while_ranks_run() -> None:
    with opened(Network(rate_bits=1e8), 2) as bed:
        assert median_echo_ms(bed) < 60
        bed.change(Network(rate_bits=1e8, delay_ms=30))
        assert 60 <= median_echo_ms(bed) < 240
        bed.change(Network(delay_ms=60))
        assert median_echo_ms(bed) >= 120
        bed.change(Network())
        assert median_echo_ms(bed) < 60


def numbered(rank: int, size: int) -> list[int]:
    """Rank 1 sends numbered datagrams to rank 0, which returns their numbers as they came."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        if rank == 0:
            door.bind(("", PORT))
            return numbers(door)
        door.connect(("10.77.0.1", PORT))
        door.settimeout(0.5)
        for number in range(DATAGRAMS):
            if number % AT_ONCE == 0:
                catch_up(door)
            door.send(number.to_bytes(4, "big"))
        for _ in range(ENDS):
            with suppress(ConnectionRefusedError):  # the first of them was enough
                door.send(b"the end")
        return []


def catch_up(door: socket.socket) -> None:
    """Returns when the other side has read what was sent before."""
    while True:
        door.send(b"there?")
        while True:
            try:
                door.recv(2000)
                return
            except ConnectionRefusedError:
                continue  # it is not there yet: ask again, but not at once
            except TimeoutError:
                break


def numbers(door: socket.socket) -> list[int]:
    """What comes before the end, and what was held back behind it."""
    found: list[int] = []
    while True:
        try:
            data, there = door.recvfrom(2000)
        except TimeoutError:
            return found
        if data == b"there?":
            door.sendto(data, there)
        elif data == b"the end":
            door.settimeout(0.5)
        else:
            found.append(int.from_bytes(data, "big"))


def test_packets_get_lost_in_bursts_come_twice_and_are_overtaken() -> None:
    network = Network(rate_bits=1e7, delay_ms=5, loss=0.1, burst=5, reorder=0.05, duplicate=0.05)
    with opened(network, 2, seed=1) as bed, Ranks(numbered, 2, bed=bed) as ranks:
        came = ranks.join(60)[0]
        counted = bed.counters()[1]
    once = set(came)
    lost = sorted(set(range(DATAGRAMS)) - once)
    gaps = 1 + sum(after != before + 1 for before, after in pairwise(lost))
    assert 0.05 < len(lost) / DATAGRAMS < 0.2
    assert 3 < len(lost) / gaps < 8
    assert 0.02 < (len(came) - len(once)) / DATAGRAMS < 0.1
    assert sum(after < before for before, after in pairwise(came)) > DATAGRAMS / 100
    assert counted.lost_packets == pytest.approx(len(lost), abs=OTHERS)
    assert counted.duplicated_packets == pytest.approx(len(came) - len(once), abs=OTHERS)
    assert counted.reordered_packets > DATAGRAMS / 100


def sum_over_ranks(rank: int, size: int) -> float:
    total = torch.full((50_000,), float(rank))
    dist.all_reduce(total)
    dist.barrier()
    return float(total[-1])


@pytest.mark.parametrize("offload", [False, True])
@pytest.mark.parametrize("backend", ["tweed", "gloo"])
def test_collectives_cross_a_long_link(backend: str, offload: bool) -> None:
    network = Network(rate_bits=1e9, rtt_ms=10, loss=0 if offload else 0.001, offload=offload)
    assert run_ranks(sum_over_ranks, 3, backend=backend, network=network) == [3.0] * 3


def heard(bed: LiveNetwork, rank: int) -> bool:
    """Whether anything of the rank `rank` gets to rank 0 and back."""
    program = (
        "import socket\n"
        "door = socket.create_connection(('10.77.0.1', 5000), timeout=0.3)\n"
        "door.sendall(b'x')\n"
        "raise SystemExit(door.recv(1) != b'x')\n"
    )
    words = bed.command(rank, sys.executable, "-c", program)
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


ANSWERING = """
import socket
with socket.create_server(("", 5000)) as server:
    print("here", flush=True)
    while True:
        server.accept()[0].sendall(b"x")
"""


@pytest.mark.parametrize("network", [Network(), Network(delay_ms=2)])
def test_a_host_that_is_cut_off_hears_nothing_until_it_is_healed(network: Network) -> None:
    with opened(network, 3) as bed:
        words = bed.command(0, sys.executable, "-c", ANSWERING)
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout and server.stdout.readline() == "here\n"
            assert heard(bed, 1)
            bed.cut(1)
            assert [heard(bed, 1), heard(bed, 2)] == [False, True]
            bed.cut(0)
            bed.heal(1)
            assert not heard(bed, 1)
            bed.heal(0)
            assert heard(bed, 1)
            server.kill()
        assert bed.counters()[1].lost_packets > 0


def test_a_rank_that_is_not_there_cannot_be_cut_off() -> None:
    with opened(Network(), 1) as bed, pytest.raises(UsageError, match="no rank 1 in a testbed of 1"):
        bed.cut(1)


def test_what_was_counted_outlives_a_change() -> None:
    with opened(Network(rate_bits=1e7, duplicate=0.5), 2) as bed:
        with Ranks(numbered, 2, bed=bed) as ranks:
            ranks.join(60)
        before = bed.counters()[1]
        bed.change(Network())
        assert bed.counters()[1].duplicated_packets == before.duplicated_packets > 0
        bed.change(Network(delay_ms=1))
        assert bed.counters()[1].duplicated_packets == before.duplicated_packets


def test_a_network_for_more_hosts_than_there_are_is_refused() -> None:
    with pytest.raises(UsageError, match="describes rank 2, and there are only 2 ranks"):
        run_ranks(sum_over_ranks, 2, network=Network(hosts={2: Link(rate_bits=1e6)}))


def test_an_emulator_that_is_gone_is_told_with_its_last_words() -> None:
    with opened(Network(delay_ms=1), 2) as bed:
        assert bed._emulator is not None
        bed._emulator._process.kill()
        with pytest.raises(NoTestbed, match="the link emulator is gone"):
            bed.counters()


def test_what_was_missed_or_late_is_doubtful() -> None:
    assert Report((), packets=1000, late_packets=10).doubts == []
    missed, late = Report((), packets=1000, missed_packets=1, late_packets=11).doubts
    assert "did not keep up with 1 packets" in missed
    assert "11 of 1,000 packets by more than a millisecond" in late


LAUNCHER = """
from tweed.testbed import Network, opened

if __name__ == "__main__":
    with opened(Network(rate_bits=1e9, delay_ms=5), 2) as bed:
        print(bed.emulator_pid, *(host.namespace for host in bed.hosts), flush=True)
        input()
"""


def test_a_launcher_that_is_killed_leaves_no_emulator(tmp_path: Path) -> None:
    emulator, *spaces = words_of_killed(LAUNCHER, tmp_path)
    assert gone([int(emulator)])
    assert living_in(set(spaces)) == []


AS_NOBODY = """
import os
from tweed.testbed import Network, opened

if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
with opened(Network(rate_bits=1e8, delay_ms=1), 2) as bed:
    print(bed._namespaces.own_user, len(bed.counters()))
"""


def test_a_plain_user_gets_delay_too() -> None:
    """In a container the interpreter of these tests may be root's alone: then the system's own must do."""
    choices = [sys.executable, shutil.which("python3", path="/usr/bin:/bin")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for python in filter(None, choices):
        done = subprocess.run(
            [python, "-c", AS_NOBODY], capture_output=True, text=True, env=environment, check=False
        )
        if done.returncode == 0:
            assert done.stdout == "True 2\n"
            return
    pytest.skip(f"no interpreter here that a plain user may run: {done.stderr}")
