"""Firewalls between hosts: one that opens one way only does no harm, and others are named at both ends."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.torch.test_admission import SECRET, total
from tweed.errors import UsageError
from tweed.testbed import LiveNetwork, Network, Ranks, opened
from tweed.torch import Options

PORTS = "29600-29601"


def wall(bed: LiveNetwork, *ranks: int) -> None:
    """From now on the hosts of `ranks`, and no others, drop all calls that come in."""
    for rank in range(bed.size):
        rules = "add table inet wall\ndelete table inet wall\n"
        if rank in ranks:
            rules += "add table inet wall\nadd chain inet wall i { type filter hook input priority 0; }\n"
            rules += "add rule inet wall i tcp flags & (syn | ack) == syn drop\n"
        subprocess.run(bed.command(rank, "nft", "-f", "-"), input=rules, text=True, check=True)


def total_and_output(rank: int, size: int, settings: list[dict[str, str]]) -> tuple[object, str]:
    """`total`, and what was printed on the error stream meanwhile."""
    with tempfile.TemporaryFile() as output:
        os.dup2(output.fileno(), 2)
        found = total(rank, size, settings)
        output.seek(0)
        return found, output.read().decode()


def totals(bed: LiveNetwork, store: Path, **settings: str) -> list[tuple[object, str]]:
    given = {"STORE": str(store), "TWEED_SECRET": SECRET, "TWEED_PORTS": PORTS} | settings
    with Ranks(total_and_output, bed.size, [given] * bed.size, bed=bed) as ranks:
        return ranks.join(60)


@pytest.mark.usefixtures("namespaces")
def test_calls_go_the_way_that_is_open_and_a_closed_one_is_named_at_both_ends(
    tmp_path: Path,
) -> None:
    with opened(Network(rate_bits=1e9), 2) as bed:
        for closed in (0, 1):  # one of the two is who calls by the rule
            wall(bed, closed)
            found = totals(bed, tmp_path / f"store{closed}", TWEED_DEADLINE="12")
            assert [sums for sums, _ in found] == [{3.0}] * 2
        wall(bed, 0, 1)
        found = totals(bed, tmp_path / "store", TWEED_DEADLINE="5")
        places = [f"{host.address}:29600" for host in bed.hosts]
        allowed = [f"sudo ufw allow proto tcp from {host.address} to any port 29600" for host in bed.hosts]
    for error, printed in found:
        (said,) = [line for line in printed.splitlines() if "still has no link to" in line]
        assert "cannot" in str(error)  # be reached, or be made as the other rank has failed so
        for words in (str(error), said):
            assert any(place in words for place in places)
            assert all(line in words for line in allowed)


def test_ports_that_are_none_are_named() -> None:
    assert Options(ports="29600").ports_range() == (29600, 29600)
    for odd in ("29700-29600", "0-4", "ssh", "1-70000", "-5"):
        with pytest.raises(UsageError, match=r"ports must look like 29600-29699.*TWEED_PORTS"):
            Options.resolve(Options(ports=odd))
