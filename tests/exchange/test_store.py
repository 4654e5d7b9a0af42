"""Torch's stores as tweed opens, calls and reads them."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from tweed.elastic import rendezvous as meeting
from tweed.errors import PeerLost, TweedError, UsageError
from tweed.exchange.store import (
    has_secret,
    open_store,
    place_of,
    reach_store,
    reading,
    split_place,
    text,
    whole,
)
from tweed.torch import torchrun
from tweed.torch.agreement import RankTerms
from tweed.torch.meeting import Place, Process
from tweed.torch.options import Options
from tweed.torch.rendezvous import Terms, join

#: What strangers may write: anything that JSON can be, and what it cannot.
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner, max_size=6),
    max_leaves=12,
)
NONSENSE = VALUES.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=60)
READERS = {
    "terms": Terms.decode,
    "a rank": lambda said: RankTerms.decode(said.decode()),
    "a process": lambda said: Process.decode(said.decode()),
    "a descriptor": Process.of_descriptor,
    "a founder": meeting._founder,
    "addresses": torchrun._addresses,
}


@pytest.fixture(autouse=True)
def _no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TWEED_SECRET", "TWEED_SECRET_FILE", "TWEED_TESTBED"):
        monkeypatch.delenv(name, raising=False)


def listening(port: int) -> list[str]:
    """The addresses at which this port is open, as the kernel writes them."""
    tables = [Path(f"/proc/net/{table}").read_text() for table in ("tcp", "tcp6")]
    lines = [line.split() for table in tables for line in table.splitlines()]
    return [
        line[1].rpartition(":")[0] for line in lines if line[3] == "0A" and line[1].endswith(f":{port:04X}")
    ]


@pytest.mark.parametrize(
    ("host", "address"), [("127.0.0.1", "0100007F"), ("::1", "00000000000000000000000001000000")]
)
def test_a_store_is_open_at_its_address_alone(host: str, address: str) -> None:
    kept = open_store(host)
    assert listening(kept.port) == [address]
    other = reach_store(host, kept.port, 5.0)
    other.set("a", b"1")
    assert kept.get("a") == b"1"


def test_without_a_secret_only_loopback_is_opened_and_called(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"192\.0\.2\.1 is not on loopback.*TWEED_SECRET_FILE"):
        open_store("192.0.2.1")
    with pytest.raises(UsageError, match=r"the store at 192\.0\.2\.1:7 is not on loopback"):
        reach_store("192.0.2.1", 7, 1.0)
    monkeypatch.setenv("TWEED_TESTBED", "net:[1]")
    with pytest.raises(UsageError, match="not on loopback"):
        open_store("192.0.2.1")
    monkeypatch.setenv("TWEED_TESTBED", os.readlink("/proc/self/ns/net"))
    with pytest.raises(OSError, match="assign"):
        open_store("192.0.2.1")
    assert not has_secret()


def test_a_store_that_is_gone_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(PeerLost, match=rf"the store at 127\.0\.0\.1:{port} is not reached"):
        reach_store("127.0.0.1", port, 1.0)


@pytest.mark.parametrize("reader", READERS)
@given(said=NONSENSE)
def test_nonsense_is_an_error_that_names_the_store(reader: str, said: bytes) -> None:
    words = r"the store at HashStore holds something else than .*Another program"
    with pytest.raises(PeerLost, match=words), reading(dist.HashStore(), reader):
        READERS[reader](said)
        raise ValueError("it is sound")


def test_what_is_said_has_a_type_and_a_length() -> None:
    for wrong in (True, "1", 1.0, -1, 9):
        with pytest.raises(ValueError, match="no number from 0 to 8"):
            whole(wrong, most=8)
    with pytest.raises(ValueError, match="no name"):
        text("x" * 2000)
    for place in ("", "host", "host:", "host:0", "host:65536", "host:x", "x" * 2000 + ":1"):
        with pytest.raises(ValueError, match=r"host:port|invalid literal"):
            split_place(place)
    assert split_place("[::1]:80") == ("::1", 80)


def test_errors_of_the_tree_pass() -> None:
    for error in (UsageError("mine"), PeerLost("mine")):
        with pytest.raises(type(error), match=r"^mine$"), reading(dist.HashStore(), "anything"):
            raise error


def test_a_place_is_that_of_the_store_beneath() -> None:
    kept = open_store("127.0.0.1")
    prefixed = dist.PrefixStore("a", dist.PrefixStore("b", kept))
    assert place_of(prefixed) == f"127.0.0.1:{kept.port}"


@pytest.mark.parametrize("said", [b"\xff\xfe", b"{}", b"[" * 5000, b"x" * 100_000])
def test_who_spoils_a_store_stops_a_start_and_is_told_of_by_its_place(said: bytes) -> None:
    kept: Any = open_store("127.0.0.1")
    kept.set("tweed/holder/0", said)
    place = Place(kept, "spoilt", 0, 1, dist.default_pg_timeout)
    with pytest.raises(TweedError, match=rf"the store at 127\.0\.0\.1:{kept.port} holds something else"):
        join(None, place, Options())  # type: ignore[arg-type]  # it comes to no engine
