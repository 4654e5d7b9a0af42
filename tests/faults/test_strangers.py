"""Another user of the machine calls what a run holds open: refused and counted, and the run goes on.

They need root, to become another user.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 another user may not read Python's own files later
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.elastic.trains import STEPS, Trainee, sampler
from tests.simulate.test_elastic import trained
from tweed import _core
from tweed.collective import NETWORK, plan
from tweed.elastic import Elastic, ElasticRun, start
from tweed.errors import PeerLost, TweedError
from tweed.exchange.store import open_store, reach_store
from tweed.testbed import Ranks, Said, run_ranks, say
from tweed.testbed.faults import Plan
from tweed.torch.node import node

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")

NOBODY = 65534
SECRET = {"TWEED_SECRET": "open sesame, open sesame"}
CALLS = 300
FLOOD_BYTES = 100_000
#: What a process may take while it is called: far less than what is said to it, and more than noise.
MOST_KIB = 20_000


def preamble(purpose: bytes) -> bytes:
    """The first bytes of a link, for ranks in the clear (0, 0) or sealed (1, 0), or for a hub (1, 1)."""
    protocol = json.loads(_core.Node().card())["protocol"]
    return b"\x89tweed\r\n" + int(protocol).to_bytes(2, "big") + purpose


OPEN, HUB = b"\0\0", b"\1\1"
#: A frame of one byte: the caller is turned away, as both are not seen to be of one user.
REFUSED = b"\x02\x00\x01\x06"


def become_nobody() -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def calls(rank: int, size: int, port: int, first: bytes) -> bytes:
    """What another user hears that calls there and says this; afterwards it floods the port."""
    become_nobody()
    heard = said(port, first)
    for _ in range(CALLS):
        said(port, first + os.urandom(FLOOD_BYTES))
    return heard


def said(port: int, first: bytes) -> bytes:
    heard = b""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as wire:
        try:
            wire.sendall(first)
            while more := wire.recv(4096):
                heard += more
        except ConnectionError:
            pass
    return heard


def rss_kib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def own_ports() -> list[int]:
    """On which this process listens."""
    files = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    own = {os.readlink(file) for file in files if os.path.islink(file)}
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    found = [line for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in own]
    return [int(line[1].rpartition(":")[2], 16) for line in found]


def sums(rank: int, size: int, folder: Path, settings: Mapping[str, str]) -> tuple[set[float], Any, int]:
    """Sums until it is over. Returns all that came out, who was refused, and the memory that it took."""
    os.environ.update({"TWEED_TRANSPORT": "tcp"} | settings)
    store = dist.FileStore(str(folder / "store"), size)
    dist.init_process_group("tweed", store=store, rank=rank, world_size=size)
    dist.all_reduce(torch.ones(10_000))
    before = rss_kib()
    say(own_ports())
    found: set[float] = set()
    over = torch.zeros(1)
    while not over:
        tensor = torch.full((10_000,), float(rank + 1))
        dist.all_reduce(tensor)
        found |= set(tensor.tolist())
        over = torch.tensor([float(rank == 0 and (folder / "over").exists())])
        dist.all_reduce(over)
    return found, node().refused(), rss_kib() - before


def heard_of(ranks: Ranks, count: int) -> list[Any]:
    """What so many ranks say."""
    found: list[Any] = []
    while len(found) < count:
        events = ranks.poll(60.0)
        assert events, "nobody says anything"
        assert all(isinstance(event, Said) for event in events), events
        found += [event.value for event in events if isinstance(event, Said)]
    return found


@pytest.mark.parametrize(
    ("settings", "reason"), [({}, "user"), (SECRET, "sealed or not")], ids=["without a secret", "with one"]
)
def test_a_stranger_who_calls_the_engine(tmp_path: Path, settings: dict[str, str], reason: str) -> None:
    with Ranks(sums, 2, tmp_path, settings) as ranks:
        ports = [port for ports in heard_of(ranks, 2) for port in ports]
        heard = [run_ranks(calls, 1, port, preamble(OPEN))[0] for port in ports]
        (tmp_path / "over").touch()
        ended = ranks.join(60.0)
    assert ports
    assert all(found == {3.0} for found, _, _ in ended)
    assert sum(refused.get(reason, 0) for _, refused, _ in ended) > CALLS / 2
    assert all(taken < MOST_KIB for _, _, taken in ended)
    if not settings:
        assert heard == [preamble(OPEN) + REFUSED] * len(ports)


def trains(rank: int, size: int, port: int, folder: Path) -> tuple[torch.Tensor, Any, int]:
    """Members train; in the middle they wait until the stranger has called."""
    control = start(dist.TCPStore("127.0.0.1", port, is_master=False), rank, size, Elastic(1, size))
    run, trainee = ElasticRun(control, sampler(), timeout_s=60), Trainee()
    before = 0
    for step in range(STEPS):
        if step == STEPS // 2:
            before = rss_kib()  # by now a step has brought all that training loads
            say(control.address)
            while not (folder / "over").exists():
                time.sleep(0.01)
        trainee.step(run, lambda: None)
    run.finish()
    refused, taken = control._links.refused(), rss_kib() - before
    control.close()
    return trainee.params.detach(), refused, taken


@pytest.mark.parametrize("settings", [{}, SECRET], ids=["without a secret", "with one"])
def test_a_stranger_who_wants_to_join_members(
    tmp_path: Path, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    store = open_store("127.0.0.1")
    with Ranks(trains, 2, store.port, tmp_path) as ranks:
        ports = [int(address.rpartition(":")[2]) for address in heard_of(ranks, 2)]
        heard = [run_ranks(calls, 1, port, preamble(HUB) + b"\x01\x00\x01\x00")[0] for port in ports]
        (tmp_path / "over").touch()
        ended = ranks.join(60.0)
    expected = trained(Plan(), steps=STEPS).params
    assert all(torch.allclose(params, expected, rtol=0, atol=1e-12) for params, _, _ in ended)
    assert all(taken < MOST_KIB for _, _, taken in ended)
    reason = "garbled" if settings else "user"
    assert all(refused[reason] > CALLS / 2 for _, refused, _ in ended), ended
    assert all(len(one) <= len(preamble(HUB) + REFUSED) for one in heard)


def test_a_stranger_who_calls_a_hub_or_objects() -> None:
    links = _core.HubLinks()
    hub = int(links.listen("127.0.0.1:0").rpartition(":")[2])
    objects = _core.Objects()
    place = json.loads(objects.descriptor)["tcp"]
    for port in (hub, int(place.rpartition(":")[2])):
        assert run_ranks(calls, 1, port, preamble(HUB)) == [preamble(HUB) + REFUSED]
    assert links.refused()["user"] > CALLS / 2
    assert links.next(0.0) == []
    links.close()


def calls_locally(rank: int, size: int, name: str) -> bytes:
    """What another user hears that calls a local socket of a rank."""
    become_nobody()
    with socket.socket(socket.AF_UNIX) as wire:
        wire.settimeout(30)
        wire.connect("\0" + name)
        return wire.recv(4096)


def test_a_stranger_who_calls_a_local_socket() -> None:
    engine = _core.Node()
    assert run_ranks(calls_locally, 1, json.loads(engine.card())["local"]) == [b""]
    assert engine.refused() == {"user": 1}


def answers(rank: int, size: int, first: bytes) -> bytes:
    """Another user that listens, answers as a tweed does, and returns what it has heard."""
    become_nobody()
    listener = socket.create_server(("127.0.0.1", 0))
    say(listener.getsockname()[1])
    wire, _ = listener.accept()
    wire.settimeout(30)
    with wire:
        wire.sendall(first)
        heard = b""
        try:
            while more := wire.recv(4096):
                heard += more
        except ConnectionError:
            pass
    return heard


@contextmanager
def listening(first: bytes) -> Iterator[tuple[int, Ranks]]:
    with Ranks(answers, 1, first) as ranks:
        yield heard_of(ranks, 1)[0], ranks


def test_a_hub_that_is_another_users_is_told_nothing() -> None:
    links = _core.HubLinks()
    with listening(preamble(HUB)) as (port, ranks):
        with pytest.raises(TweedError, match=r"another user of this machine \(number 65534\).*SECRET_FILE"):
            links.call(f"127.0.0.1:{port}")
        assert ranks.join(30.0) == [preamble(HUB)]
    links.close()


def test_an_address_that_a_stranger_left_in_the_store_is_told_nothing() -> None:
    """The start ends, and the error names who cannot be reached, and why."""
    engine = _core.Node(transport="tcp", host="127.0.0.1", dial_only=True)
    with listening(preamble(OPEN)) as (port, ranks):
        own = json.loads(engine.card())
        forged = own | {"uid": "f" * 32, "tcp": f"127.0.0.1:{port}"}
        cards = [engine.card(), json.dumps(forged).encode()]
        rows = plan(2, NETWORK).rows()
        with pytest.raises(TweedError, match="another user of this machine"):
            engine.join("group", 1, 0, cards, rows, 10.0)
        assert ranks.join(30.0) == [preamble(OPEN)]
    elsewhere = json.dumps(forged | {"tcp": "192.0.2.1:7"}).encode()
    with pytest.raises(TweedError, match="its address is not loopback"):
        engine.join("group", 2, 0, [engine.card(), elsewhere], rows, 10.0)


def test_a_store_that_is_another_users_is_not_called() -> None:
    words = "is not reached: it belongs to another user"
    with listening(b"") as (port, ranks):
        with pytest.raises(PeerLost, match=rf"127\.0\.0\.1:{port} {words}"):
            reach_store("127.0.0.1", port, 5.0)
        assert ranks.running() == [0], "nobody has called it"
        assert ranks.poll(0.0) == []


def test_from_another_namespace_nothing_listens() -> None:
    links, store = _core.HubLinks(), open_store("127.0.0.1")
    ports = [int(links.listen("127.0.0.1:0").rpartition(":")[2]), store.port]
    code = (
        "import socket, sys\n"
        "for port in sys.argv[1:]:\n"
        "    print(socket.socket().connect_ex(('127.0.0.1', int(port))))"
    )
    script = 'ip link set lo up && exec "$@"'
    told = subprocess.run(
        ["unshare", "-n", "sh", "-c", script, "sh", sys.executable, "-c", code, *map(str, ports)],
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    links.close()
    assert told.stdout.split() == ["111", "111"]
