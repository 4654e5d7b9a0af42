"""What each check makes of what it saw, and that it can look at this machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tweed.doctor import CHECKS, Check, Level, examine
from tweed.doctor.checks import (
    clock,
    compiler,
    environment,
    files,
    hostname,
    interfaces,
    memory,
    offload,
    open_ports,
    ports,
    rendezvous,
    secret,
    tcp,
    testbed,
    udp,
    versions,
)
from tweed.doctor.checks.interfaces import Interface
from tweed.doctor.finding import Finding, worst_first
from tweed.torch.options import known_variables

OK, NOTE, WARNING, ERROR = Level
LO = Interface("lo", "127.0.0.1", "127.0.0.0/8", 65536)
ETH = Interface("eth0", "192.0.2.2", "192.0.2.0/24", 1500)
WLAN = Interface("wlan0", "198.51.100.7", "198.51.100.0/24", 1500)
DOCKER = Interface("docker0", "172.17.0.1", "172.17.0.0/16", 1500, virtual=True)

CARDS = interfaces.Facts((LO, ETH), "eth0", {})
NAME = hostname.Facts("box", ("192.0.2.2",), None, ETH)
PORTS = ports.Facts(32768, 60999, "29500", False, False)
MEMORY = memory.Facts(2**35, None, 2**34, 2**34)
TCP = tcp.Facts("cubic", ("reno", "cubic"), ("reno", "cubic"), 2**25, 2**25)
OPEN = open_ports.Port("tcp", "127.0.0.1", 29600, 7, "python", "the engine's")
STORE = rendezvous.Facts(None, best=ETH)
VERSIONS = versions.Facts("0.1.0", "2.13.0+cpu", "3.11.7")
TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "box", "MASTER_PORT": "29500"}


def wanted(**names: str) -> interfaces.Facts:
    return replace(CARDS, wanted=names)


def store(**seen: Any) -> rendezvous.Facts:
    return replace(STORE, **seen)


# check, facts, the worst level, words of what was found, words of a fix
CASES: list[tuple[Any, Any, Level, str, str]] = [
    (interfaces, CARDS, OK, "eth0 (192.0.2.2", "TWEED_HOST=192.0.2.2 GLOO_SOCKET_IFNAME=eth0"),
    (interfaces, replace(CARDS, interfaces=(LO,)), NOTE, "no network but loopback", "ip -brief address"),
    (interfaces, replace(CARDS, interfaces=(LO, replace(ETH, up=False))), NOTE, "no network but", ""),
    (
        interfaces,
        replace(CARDS, interfaces=(LO, WLAN, ETH)),
        NOTE,
        "several interfaces",
        "TWEED_HOST=192.0.2.2",
    ),
    (interfaces, wanted(TWEED_HOST="192.0.2.2"), OK, "on eth0", ""),
    (interfaces, wanted(TWEED_HOST="192.0.2.9"), ERROR, "no address of", "TWEED_HOST=192.0.2.2"),
    (interfaces, wanted(TWEED_HOST="box"), ERROR, "no IP address", "TWEED_HOST=192.0.2.2"),
    (interfaces, wanted(TWEED_HOST="127.0.0.1"), NOTE, "loopback", "TWEED_HOST=192.0.2.2"),
    (interfaces, wanted(GLOO_SOCKET_IFNAME="eth9"), ERROR, "no interface eth9", "IFNAME=eth0"),
    (interfaces, wanted(GLOO_SOCKET_IFNAME="lo"), NOTE, "only ranks of this", "IFNAME=eth0"),
    (interfaces, replace(CARDS, interfaces=(replace(ETH, mtu=1400),)), NOTE, "1400", "ping -M do -s 1372"),
    (hostname, NAME, OK, "box is 192.0.2.2", ""),
    (hostname, replace(NAME, addresses=("127.0.1.1",)), WARNING, "loopback", "GLOO_SOCKET_IFNAME=eth0"),
    (hostname, replace(NAME, addresses=("127.0.1.1", "::1")), WARNING, "loopback", "192.0.2.2 box"),
    (hostname, replace(NAME, addresses=("127.0.1.1",), gloo="eth0"), NOTE, "loopback", ""),
    (hostname, replace(NAME, addresses=("127.0.1.1",), best=None), NOTE, "loopback", "nothing to do"),
    (hostname, replace(NAME, addresses=(), error="not known"), WARNING, "not known", "/etc/hosts"),
    (ports, PORTS, OK, "29500", ""),
    (ports, replace(PORTS, taken=True, holder="python, pid 7"), WARNING, "pid 7", "--master-port 29501"),
    (ports, replace(PORTS, taken=True), WARNING, "another user", "sudo ss -ltnp"),
    (ports, replace(PORTS, port="65535", given=True, taken=True), WARNING, "65535", "MASTER_PORT=65534"),
    (ports, replace(PORTS, taken=True, started=True), OK, "in use by torchrun", ""),
    (ports, replace(PORTS, high=33000), WARNING, "only ports", "ip_local_port_range"),
    (ports, replace(PORTS, error="refused"), ERROR, "refused", "ip link set lo up"),
    (ports, replace(PORTS, port="40000", given=True), NOTE, "by chance", "MASTER_PORT=29500"),
    (open_ports, (), OK, "no run of this user", ""),
    (open_ports, (OPEN,), OK, "the engine's", ""),
    (open_ports, (replace(OPEN, address="::ffff:127.0.0.1"),), OK, "on loopback", ""),
    (open_ports, (replace(OPEN, address="192.0.2.2"),), NOTE, "whoever reaches", "security.md"),
    (open_ports, (replace(OPEN, address="::"),), WARNING, "all interfaces", "tcp --dport 29600"),
    (rendezvous, STORE, OK, "no store", ""),
    (rendezvous, store(listening=("0.0.0.0",)), WARNING, "all interfaces", "saddr != 192.0.2.0/24"),
    (rendezvous, store(listening=("::",), master="box"), WARNING, "without a password", "tweed train"),
    (rendezvous, store(listening=("127.0.0.1",), master="box"), OK, "no store", ""),
    (rendezvous, store(master="box", addresses=("192.0.2.2",)), NOTE, "once rank 0 runs", "nft"),
    (rendezvous, store(master="bx", error="unknown", mine=False), ERROR, "unknown", "MASTER_ADDR="),
    (
        rendezvous,
        store(master="localhost", addresses=("127.0.0.1",), several_hosts=True),
        ERROR,
        "cannot come",
        "--master-addr",
    ),
    (rendezvous, store(master="far", mine=False, refused="timed out"), ERROR, "timed out", "ping far"),
    (
        rendezvous,
        store(master="far", mine=False, refused="[Errno 111] Connection refused"),
        NOTE,
        "nobody listens",
        "before rank 0 starts",
    ),
    (memory, MEMORY, OK, "32.0 GiB", ""),
    (memory, replace(MEMORY, ahead_bytes=2**26), OK, "64 MiB from each peer", ""),
    (memory, replace(MEMORY, cgroup_bytes=2**30), NOTE, "1.0 GiB", "--memory"),
    (memory, replace(MEMORY, shm_bytes=2**26), WARNING, "64 MiB", "--shm-size"),
    (memory, replace(MEMORY, shm_free_bytes=2**20), WARNING, "1 MiB free", "--shm-size"),
    (memory, replace(MEMORY, shm_bytes=None), WARNING, "no /dev/shm", "mount -t tmpfs"),
    (memory, replace(MEMORY, error="EFBIG", limits=("-f",)), ERROR, "EFBIG", "ulimit -f unlimited"),
    (memory, replace(MEMORY, error="ENOMEM"), ERROR, "ENOMEM", "overcommit"),
    (files, files.Facts(1024, 4096), OK, "1024", ""),
    (files, files.Facts(-1, -1), OK, "any number", ""),
    (files, files.Facts(256, 4096), NOTE, "9 peers", "ulimit -n 65536"),
    (files, files.Facts(64, 128), WARNING, "0 peers", "limits.conf"),
    (tcp, TCP, OK, "cubic", ""),
    (tcp, replace(TCP, rmem_max=2**21), NOTE, "671 Mbit/s", 'tcp_rmem="4096 131072 33554432"'),
    (tcp, replace(TCP, rmem_max=None, wmem_max=None), OK, "cubic", ""),
    (tcp, replace(TCP, current="bbr", available=("bbr", "cubic")), NOTE, "bbr", "TWEED_CONGESTION=cubic"),
    (tcp, replace(TCP, wanted="bbr"), ERROR, "not among", "modprobe tcp_bbr"),
    (tcp, replace(TCP, wanted="bbr", available=("bbr",)), ERROR, "only root", 'control="bbr"'),
    (tcp, replace(TCP, wanted="bbr", available=("bbr",), root=True), OK, "as TWEED_CONGESTION says", ""),
    (udp, udp.Facts(2**23, 2**23), OK, "8 MiB", ""),
    (udp, udp.Facts(212992, 2**23), NOTE, "0.2 MiB", "sysctl -w net.core.rmem_max=8388608"),
    (udp, udp.Facts(None, None), OK, "does not show", ""),
    (offload, offload.Facts("eth0", True), OK, "by itself", ""),
    (offload, offload.Facts("eth0", False), NOTE, "processor", "ethtool -K eth0 tso on"),
    (offload, offload.Facts("eth0", None, "ethtool is not installed"), OK, "not installed", ""),
    (compiler, compiler.Facts(cached="/c"), OK, "in /c", ""),
    (compiler, compiler.Facts(compiler="g++"), NOTE, "20 s", "build.build()"),
    (compiler, compiler.Facts(error="no C++ compiler found"), WARNING, "Python one", "apt install g++"),
    (compiler, compiler.Facts(compiler="g++", cannot_keep="/x cannot"), WARNING, "/x", "TWEED_CACHE="),
    (versions, VERSIONS, OK, "torch 2.13.0", ""),
    (versions, replace(VERSIONS, torch="2.9.1"), ERROR, "2.9.1 is too old", "torch>=2.10"),
    (versions, replace(VERSIONS, torch=None), ERROR, "not installed", "torch>=2.10"),
    (versions, replace(VERSIONS, torchcomms="1"), WARNING, "TorchComms", "unset TORCH_DISTRIBUTED"),
    (versions, replace(VERSIONS, autoload="0"), NOTE, "by itself", "import tweed"),
    (versions, replace(VERSIONS, engine="no _core"), ERROR, "no _core", "make build"),
    (versions, replace(VERSIONS, system="Darwin"), ERROR, "Darwin", "Linux"),
    (secret, secret.Facts(None), OK, "none is needed on one host", "TWEED_SECRET_FILE="),
    (secret, secret.Facts("127.0.0.1"), OK, "none is needed", ""),
    (secret, secret.Facts("192.0.2.2"), ERROR, "refuses to start", "TWEED_SECRET_FILE="),
    (secret, secret.Facts("192.0.2.2", testbed=True), OK, "none is needed", ""),
    (secret, secret.Facts("192.0.2.2", length=44), OK, "a secret is set", ""),
    (secret, secret.Facts("192.0.2.2", length=3), WARNING, "3 characters", "urandom"),
    (secret, secret.Facts("192.0.2.2", file="s"), OK, "a secret is set", ""),
    (secret, secret.Facts("192.0.2.2", file="s", mode=0o644), WARNING, "mode 0644", "chmod 600 s"),
    (secret, secret.Facts(None, file="s", error="no such file"), ERROR, "no such file", "urandom"),
    (environment, {}, OK, "not started by torchrun", ""),
    (environment, TORCHRUN, OK, "started by torchrun", ""),
    (environment, {"MASTER_ADDR": "box", "MASTER_PORT": "1"}, OK, "nothing is set wrongly", ""),
    (environment, {"RANK": "0"}, ERROR, "RANK set without WORLD_SIZE, MASTER_ADDR, MASTER_PORT", "torchrun"),
    (environment, TORCHRUN | {"RANK": "2"}, ERROR, "0 to WORLD_SIZE - 1", "another RANK"),
    (environment, TORCHRUN | {"RANK": "x"}, ERROR, "RANK=x", "RANK=NUMBER"),
    (environment, TORCHRUN | {"MASTER_PORT": "70000"}, ERROR, "no port", "29500"),
    (environment, {"TWEED_HOTS": "::1"}, ERROR, "did you mean TWEED_HOST?", "export TWEED_HOST=::1"),
    (environment, {"TWEED_ZZZZZZZZ": "1"}, WARNING, "it knows TWEED_", "unset TWEED_ZZZZZZZZ"),
    (environment, {"TWEED_STREAMS": "many"}, ERROR, "whole number", "correct or unset"),
    (clock, clock.Facts(True, 0.02), OK, "20 ms", ""),
    (clock, clock.Facts(False), NOTE, "in step", "timedatectl"),
    (clock, clock.Facts(None, why="not permitted"), OK, "not permitted", ""),
    (testbed, testbed.Facts(None), OK, "--network", ""),
    (testbed, testbed.Facts("needs nft: apt install nftables"), NOTE, "apt install nftables", "as it says"),
]


@pytest.mark.parametrize(("check", "facts", "level", "what", "fix"), CASES)
def test_judges(check: Any, facts: Any, level: Level, what: str, fix: str) -> None:
    found = worst_first(check.judge(facts))
    assert found[0].level is level
    assert what in found[0].what or what in " ".join(one.what for one in found if one.level is level)
    assert fix in " ".join(one.fix for one in found)


@pytest.mark.parametrize(("check", "facts", "level", "what", "fix"), CASES)
def test_every_complaint_has_a_fix(check: Any, facts: Any, level: Level, what: str, fix: str) -> None:
    assert [one for one in check.judge(facts) if one.level > OK and not one.fix] == []


def test_every_check_is_judged_by_the_table() -> None:
    judged = {case[0].judge for case in CASES}
    assert {check.name for check in CHECKS} == {check.name for check in CHECKS if check.judge in judged}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_looks_at_this_machine(check: Check) -> None:
    found = list(check.judge(check.gather()))  # not through `examine`, which would hide an error
    assert found
    assert all(isinstance(one, Finding) and one.what for one in found)


def test_a_check_that_fails_stops_no_other() -> None:
    def fails() -> None:
        raise PermissionError("/proc/secret")

    def judge(_: object) -> Iterator[Finding]:
        yield Finding(OK, "fine")

    checks = [Check("bad", "", fails, judge), Check("good", "", lambda: None, judge)]
    bad, good = examine(checks)
    assert (bad.subject, bad.level, "PermissionError: /proc/secret" in bad.what) == ("bad", NOTE, True)
    assert good == Finding(OK, "fine", subject="good")


def test_the_likeliest_interface_comes_first() -> None:
    found = interfaces.candidates((LO, DOCKER, WLAN, ETH), "wlan0")
    assert [one.name for one in found] == ["wlan0", "eth0", "docker0"]


def test_reads_the_default_route() -> None:
    head = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
    rows = ["wlan0 00000000 0100 0003 0 0 600 0 0 0 0", "eth0 00000000 0100 0003 0 0 100 0 0 0 0"]
    assert interfaces.default_route(head + "\n".join(rows)) == "eth0"
    assert interfaces.default_route(head + "eth0 000200C0 0 0001 0 0 0 00FFFFFF 0 0 0") is None
    assert interfaces.default_route("") is None


def test_reads_what_ethtool_says() -> None:
    assert offload.read_features("eth0", "Features:\ntcp-segmentation-offload: off [fixed]\n").on is False
    assert offload.read_features("eth0", "", "no device\n") == offload.Facts("eth0", None, "no device")


def test_a_taken_port_is_seen_with_its_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("MASTER_PORT", str(server.getsockname()[1]))
        facts = ports.gather()
    assert facts.taken
    assert f"pid {os.getpid()}" in facts.holder


def test_a_store_that_is_open_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(store.port))
    found = worst_first(rendezvous.judge(rendezvous.gather()))
    assert found[0].level is WARNING
    assert f"dport {store.port}" in found[0].fix


def test_what_a_port_is_for_is_seen_by_its_threads() -> None:
    threads = ["python", "members:29601", "pt_tcpstore_uv"]
    assert open_ports.purpose_of("tcp", 29601, threads) == "for members of an elastic run"
    assert open_ports.purpose_of("tcp", 29500, threads).startswith("torch's own")
    assert open_ports.purpose_of("tcp", 29500, threads[:2]) == "the program's own"
    assert open_ports.purpose_of("tcp", 29500, ["python"]) == ""
    assert "packets" in open_ports.purpose_of("udp", 29601, threads)


def test_the_ports_of_this_process_are_seen() -> None:
    from tweed import _core
    from tweed.exchange.store import open_store

    links, store = _core.HubLinks(), open_store("127.0.0.1")
    called = int(links.listen("127.0.0.1:0", "members").rpartition(":")[2])
    mine = [port for port in open_ports.gather() if port.pid == os.getpid()]
    links.close()
    found = {port.number: (port.address, port.purpose) for port in mine}
    assert found[called] == ("127.0.0.1", "for members of an elastic run")
    assert found[store.port][0] == "127.0.0.1"
    assert found[store.port][1].startswith("torch's own")


def test_a_secret_file_is_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("x" * 40)
    file.chmod(0o640)
    monkeypatch.delenv("TWEED_SECRET", raising=False)
    monkeypatch.setenv("TWEED_SECRET_FILE", str(file))
    assert secret.gather().mode == 0o640
    assert secret.gather().error is None
    file.write_text("\n")
    assert "is empty" in str(secret.gather().error)
    monkeypatch.setenv("TWEED_SECRET_FILE", str(tmp_path / "none"))
    assert "No such file" in str(secret.gather().error)


def test_the_secret_itself_is_not_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEED_SECRET", "do-not-tell-anybody")
    told = repr([check.gather() for check in CHECKS if check.name in ("secret", "environment")])
    assert "do-not-tell" not in told


def test_a_compiler_is_tried_where_no_backend_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TWEED_CACHE", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    facts = compiler.gather()
    assert facts.cached is None
    assert (facts.compiler is None) != (facts.error is None)
    monkeypatch.setenv("CXX", "/bin/false")
    assert "/bin/false failed" in str(compiler.gather().error)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "no-such-compiler" in str(compiler.gather().error)


def test_knows_every_variable_that_tweed_reads() -> None:
    import re

    import tweed

    sources = Path(tweed.__file__).parent.rglob("*.py")
    read = {
        name for path in sources for name in re.findall(r'environ\S*?"(TWEED_[A-Z_]+)"', path.read_text())
    }
    assert read
    assert read <= set(known_variables())
