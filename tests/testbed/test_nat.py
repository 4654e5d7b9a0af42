"""Ranks behind NAT: they call others, nobody calls them, and a network says in text which they are."""

from __future__ import annotations

import os
import socket

import pytest

from tweed.errors import UsageError
from tweed.testbed import Network, Ranks, opened


def test_who_is_behind_nat_is_part_of_the_text() -> None:
    network = Network.parse("lan,nat=3+1")
    assert network.nat == (1, 3)
    assert Network.parse(str(network)) == network
    assert "behind NAT: 1 and 3" in network.words
    with pytest.raises(UsageError, match="nat=2\\+3"):
        Network.parse("nat=all")
    with pytest.raises(UsageError, match="named by their ranks, not -1"):
        Network(nat=(-1,))
    with pytest.raises(UsageError, match="rank 2"), opened(Network(nat=(2,)), 2):
        pass


def meets(rank: int, size: int, addresses: list[str]) -> tuple[str, str, str]:
    """Both listen. Rank 1 is behind NAT: rank 0 sees its call come from its router, and calls it in vain."""
    listener = socket.create_server(("0.0.0.0", 5000))
    if rank == 1:
        while True:
            try:
                out = socket.create_connection((addresses[0], 5000), timeout=10)
                break
            except ConnectionRefusedError:  # it does not listen yet
                continue
        seen = out.recv(100).decode()
        listener.settimeout(0.5)
        with pytest.raises(TimeoutError):
            listener.accept()
        return seen, os.environ["TWEED_HOST"], os.environ["TWEED_DIAL_ONLY"]
    caller, (host, _) = listener.accept()
    for place in (addresses[1], "10.78.0.2"):
        with pytest.raises(OSError, match=r"timed out|unreachable"):
            socket.create_connection((place, 5000), timeout=0.2)
    caller.sendall(host.encode())
    return "", os.environ["TWEED_HOST"], os.environ.get("TWEED_DIAL_ONLY", "0")


@pytest.mark.usefixtures("namespaces")
def test_who_is_behind_nat_calls_others_and_cannot_be_called() -> None:
    with opened(Network(nat=(1,)), 2) as bed:
        addresses = [host.address for host in bed.hosts]
        with Ranks(meets, 2, addresses, bed=bed) as ranks:
            first, second = ranks.join(60)
        with pytest.raises(UsageError, match="open another one"):
            bed.change(Network())
    assert first == ("", addresses[0], "0")
    assert second == (addresses[1], "10.78.0.2", "1")
