"""Estimates and verdicts from made-up figures; ranks that measure each other for real."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.collective import Topology
from tweed.doctor import Level, estimate, together, verdict
from tweed.doctor.estimate import Clock, Piece, Trip
from tweed.doctor.finding import Finding
from tweed.doctor.matrix import Link, Matrix, Member
from tweed.doctor.together import Measured, RankReport, Report, on_this_machine, under_torchrun
from tweed.errors import PeerLost
from tweed.testbed import Network, run_ranks

OK, NOTE, WARNING, ERROR = Level


def member(rank: int, **others: Any) -> Member:
    values = {"host": f"h{rank}", "address": f"192.0.2.{rank}:5000", "tweed": "1", "torch": "2.13.0"}
    return Member(**({"rank": rank} | values | others))


def matrix(ranks: int, **changed: Link) -> Matrix:
    """All links alike, but for those given as `r0_1=...`."""
    pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    links = [changed.get(f"r{a}_{b}", link(a, b)) for a, b in pairs]
    return Matrix(tuple(member(rank) for rank in range(ranks)), tuple(links))


def link(src: int, dst: int, **others: Any) -> Link:
    values = {"via": "tcp", "bandwidth": 1e7, "latency_s": 1e-4, "rtt_median_s": 2e-4, "rtt_p99_s": 3e-4}
    return Link(src, dst, **(values | others))


def worst(found: Any) -> Finding:
    return max(found, key=lambda finding: finding.level)


# Estimates


@given(ahead=st.floats(-1e6, 1e6), ways=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1))
def test_the_clock_is_right_within_its_error(ahead: float, ways: list[tuple[float, float]]) -> None:
    trips = [Trip(0.0, out + ahead, out + back, out + back) for out, back in ways]
    found = estimate.clock(trips)
    assert abs(found.ahead_s - ahead) <= found.error_s + 1e-9 * (1 + abs(ahead))
    assert found.error_s == min(out + back for out, back in ways) / 2


def test_even_ways_give_the_clock_exactly() -> None:
    trips = [Trip(10.0, 13.5, 11.0, 1.0), Trip(20.0, 99.0, 50.0, 30.0)]
    assert estimate.clock(trips) == Clock(3.0, 0.5)


def test_percentiles() -> None:
    values = [float(number) for number in range(1, 101)]
    assert estimate.percentile(values, 0.5) == 50
    assert estimate.percentile(values, 0.99) == 99
    assert estimate.percentile([7.0], 0.99) == 7
    with pytest.raises(ValueError, match="no values"):
        estimate.percentile([], 0.5)


@given(rate=st.floats(1e3, 1e11), rtt=st.floats(1e-5, 2.0))
def test_pieces_grow_until_one_is_long_enough_and_then_end(rate: float, rtt: float) -> None:
    sent: list[Piece] = []
    while size := estimate.next_bytes(sent, rtt):
        sent.append(Piece(size, rtt + size / rate))
    # Else a megabit would keep a pair busy for minutes, and no pair may take long.
    assert len(sent) < 15
    assert sent[-1].size == estimate.LAST_BYTES or estimate.carried_s(sent[-1].took_s, rtt) >= 0.15
    least = 2 * estimate.FIRST_BYTES / rate
    assert sum(one.took_s for one in sent) < least + 15 * rtt + 20 * max(0.15, 3 * rtt)
    if rtt < estimate.FIRST_BYTES / rate:
        assert estimate.rate(sent, rtt) == pytest.approx(rate)


def test_a_lost_packet_at_the_end_of_a_small_piece_is_no_rate() -> None:
    stopped = [Piece(estimate.FIRST_BYTES, 0.21)]
    assert estimate.next_bytes(stopped, 0.001) == estimate.FIRST_BYTES
    again = [*stopped, Piece(estimate.FIRST_BYTES, 0.004)]
    assert estimate.next_bytes(again, 0.001) == 8 * estimate.FIRST_BYTES


# Verdicts


def test_links_that_are_alike_are_in_order() -> None:
    assert worst(verdict.of_matrix(matrix(3))).level is OK


def test_a_slow_link_is_named_with_both_speeds() -> None:
    found = worst(verdict.of_matrix(matrix(3, r1_2=link(1, 2, bandwidth=1e6))))
    assert found.level is WARNING
    assert "from rank 1 to rank 2 (h1 and h2) go 8.0 Mbit/s, where the median link carries 80.0" in found.what


def test_loopback_says_nothing_of_a_network() -> None:
    uneven = matrix(3, r1_2=link(1, 2, bandwidth=1e6))
    here = replace(uneven, members=tuple(replace(one, address="127.0.0.1:5") for one in uneven.members))
    assert worst(verdict.of_matrix(here)).level is OK


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"rtt_p99_s": 0.05}, "50.0 ms in one of a hundred"),
        (
            {"carried_bytes": 1448 * 1000, "retransmitted": 20},
            "about 2.0% of the packets had to be sent again",
        ),
    ],
)
def test_links_that_are_not_well(changed: dict[str, Any], what: str) -> None:
    found = worst(verdict.of_matrix(matrix(2, r0_1=link(0, 1, **changed))))
    assert found.level is NOTE
    assert what in found.what
    assert found.fix


@pytest.mark.parametrize(
    ("ahead", "error", "level"), [(0.0, 0.0, OK), (0.3, 0.5, OK), (0.3, 0.001, NOTE), (-90.0, 0.1, WARNING)]
)
def test_clocks(ahead: float, error: float, level: Level) -> None:
    measured = matrix(2)
    other = replace(measured.members[1], clock_s=ahead, clock_error_s=error)
    found = worst(verdict.of_matrix(replace(measured, members=(measured.members[0], other))))
    assert found.level is level
    if level is not OK:
        assert f"rank 1 on h1 is {abs(ahead):.3f} s {'ahead of' if ahead > 0 else 'behind'}" in found.what


def test_versions_that_differ_are_named_with_their_ranks() -> None:
    members = [member(0), member(1, torch="2.12.0"), member(2)]
    found = worst(verdict.of_versions(members))
    assert found.level is WARNING
    assert "2.13.0 at ranks 0, 2; 2.12.0 at rank 1" in found.what
    assert "pip install torch==2.13.0" in found.fix
    assert worst(verdict.of_versions([member(0), member(1, tweed="2")])).level is ERROR
    assert worst(verdict.of_versions(members[:1])).level is OK


def test_a_host_that_listens_on_loopback_among_several_is_named() -> None:
    near = {"boot": "a", "network": 1, "host": "h0", "tcp": "192.0.2.1:5000"}
    far = {"boot": "b", "network": 1, "host": "h1", "tcp": "127.0.0.1:5000"}
    found = worst(verdict.of_descriptors([near, far]))
    assert found.level is ERROR
    assert "rank 1 on h1 listens on loopback" in found.what
    assert "on h1: export TWEED_HOST=" in found.fix
    assert list(verdict.of_descriptors([far, far])) == []  # one host


def test_hosts_of_one_name_are_named() -> None:
    ranks = [
        {"boot": boot, "host": host} for boot, host in (("a", "pi"), ("a", "pi"), ("b", "pi"), ("c", "nas"))
    ]
    (found,) = verdict.of_names(ranks)
    assert found.level is WARNING
    assert "2 hosts are called pi: ranks 0, 1 and rank 2" in found.what
    assert list(verdict.of_names(ranks[:2])) == []


# What is told

FOUND = Finding(WARNING, "what", "fix", "subject", "host")


def test_what_is_told_survives_json() -> None:
    told = RankReport(member(1), {"tcp": "[::1]:5"}, (FOUND,))
    assert RankReport.from_plain(json.loads(json.dumps(told.plain()))) == told
    measured = Measured((link(0, 1),), {1: Clock(0.5, 0.1)})
    assert Measured.from_plain(json.loads(json.dumps(measured.plain()))) == measured
    report = json.loads(json.dumps(Report((FOUND,), matrix(2)).plain()))
    assert Matrix.from_plain(report["matrix"]) == matrix(2)
    assert report["findings"][0]["level"] == "warning"


def test_a_topology_can_be_made_of_it() -> None:
    topology = Topology(3, matrix(3).topology())
    assert topology.has_link(2, 0)
    assert topology.links[0] == (0, 1, 10**7, 1e-4, 1)


# Live


def full(measured: Matrix | None, size: int) -> Matrix:
    assert measured is not None
    assert len(measured.links) == size * (size - 1)
    assert {one.rank for one in measured.members} == set(range(size))
    return measured


def test_two_ranks_on_loopback() -> None:
    report = on_this_machine(2, None)
    measured = full(report.matrix, 2)
    for one in measured.links:
        assert one.via == "tcp"
        assert one.bandwidth > 1e5
        assert 0 < one.rtt_median_s <= one.rtt_p99_s
    other = measured.members[1]
    assert other.clock_s is not None
    assert other.clock_error_s is not None
    # The same clock on both sides, read in a trip that is at most as long as the error says; 1 ms is for
    # steps that the system's time makes against the steady one meanwhile.
    assert abs(other.clock_s) <= other.clock_error_s + 1e-3
    assert "versions" in {finding.subject for finding in report.findings}


@pytest.mark.usefixtures("namespaces")
def test_three_ranks_in_a_network_see_its_rate() -> None:
    network = Network(rate_bits=50e6)
    measured = full(on_this_machine(3, network).matrix, 3)
    rates = [one.bandwidth * 8 for one in measured.links]
    # The kernel lets no more through than the rate; a bucket of 1 ms, against a piece of 150 ms, and the
    # round trip that is taken off the time add some percent. A busy machine can be much slower.
    assert max(rates) <= 1.1 * 50e6
    assert max(rates) >= 0.5 * 50e6


def as_torchrun(rank: int, size: int, port: int) -> Report | None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank)}
    os.environ |= {"LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return under_torchrun()


def test_ranks_that_do_not_meet_are_an_error_with_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "examine", lambda: [FOUND])
    for setting in ("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1"):
        monkeypatch.setenv(*setting.split("="))
    report = under_torchrun(wait_s=1)
    assert report is not None
    assert FOUND in report.findings
    assert "ranks do not meet at 127.0.0.1:1" in worst(report.findings).what


def fails(rank: int, size: int, path: str) -> None:
    raise PeerLost(f"rank {rank} is lost")


def test_ranks_that_fail_leave_what_is_known_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "_local", fails)
    monkeypatch.setattr(together, "examine", lambda: [FOUND])
    report = on_this_machine(2, None)
    assert FOUND in report.findings
    assert "could not be measured: PeerLost: rank" in worst(report.findings).what


def test_under_torchrun_rank_0_reports_and_warns_of_the_store() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    report, nothing = run_ranks(as_torchrun, 2, port)
    assert nothing is None
    full(report.matrix, 2)
    open_store = [one for one in report.findings if one.subject == "rendezvous"]
    assert open_store[0].level is WARNING
    assert str(port) in open_store[0].what


def without_an_engine(rank: int, size: int, port: int, folder: Path) -> Report | None:
    if rank == 1:
        os.environ["TWEED_HOST"] = "203.0.113.9"  # no host has it
    return as_torchrun(rank, size, port)


def test_an_engine_that_does_not_start_is_an_error_of_that_rank(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    report, _ = run_ranks(without_an_engine, 2, port, tmp_path)
    assert report.matrix is None
    assert "the engine of rank 1 does not start" in worst(report.findings).what
