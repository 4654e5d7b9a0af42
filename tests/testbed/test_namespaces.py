"""Holding namespaces: what is missing is said, and nothing is left behind however the launcher goes."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.testbed.test_ranks import gone, words_of_killed
from tweed.errors import NoTestbed
from tweed.testbed import LiveNetwork, Network, Ranks, namespaces, opened, run_ranks
from tweed.testbed.rank_process import _move_in

NOBODY = 65534


ALL = "ethtool, ip, nft, nsenter, tc, unshare: apt install ethtool iproute2 nftables util-linux"
FEW = "ip, nsenter, unshare: apt install iproute2 util-linux"


@pytest.mark.parametrize(("network", "needs"), [(Network(rate_bits=1e9, loss=0.01), ALL), (Network(), FEW)])
def test_what_a_network_lacks_is_named(network: Network, needs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "_PATH", os.devnull)
    with pytest.raises(NoTestbed, match=f"needs {needs}"), opened(network, 2):
        pass


def test_a_kernel_that_refuses_is_quoted_with_advice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refusal = tmp_path / "unshare"
    refusal.write_text("#!/bin/sh\necho no such thing >&2\nexit 1\n")
    refusal.chmod(0o755)
    monkeypatch.setattr(namespaces, "_PATH", f"{tmp_path}{os.pathsep}{namespaces._PATH}")
    with pytest.raises(NoTestbed, match=r"no such thing; in a user namespace: no such thing\). \w+"):
        run_ranks(print, 1, network=Network())


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("kernel/unprivileged_userns_clone", "0\n", "As root: sysctl kernel.unprivileged_userns_clone=1"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1\n", "apparmor_restrict_unprivileged_userns=0"),
        ("user/max_user_namespaces", "0\n", "sysctl user.max_user_namespaces=1000"),
        ("user/max_user_namespaces", "96365\n", "Run as root; in a container"),
    ],
)
def test_advice_is_what_this_system_has_closed(tmp_path: Path, name: str, value: str, words: str) -> None:
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text(value)
    assert words in namespaces.advice(tmp_path)


def wait(rank: int, size: int) -> None:
    time.sleep(3600)


def living_in(spaces: set[str]) -> list[int]:
    """Processes of this machine whose network namespace is one of `spaces`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(process / "ns/net") in spaces:
                found.append(int(process.name))
    return found


def holders(bed: LiveNetwork) -> list[int]:
    return [bed._namespaces.holder(place) for place in range(-1, bed.size)]


@pytest.mark.usefixtures("namespaces")
def test_nothing_is_left_when_the_block_ends() -> None:
    with opened(Network(rate_bits=1e9), 2) as bed:
        spaces = {os.readlink(f"/proc/{holder}/ns/net") for holder in holders(bed)}
        assert len(spaces) == 3
        assert sorted(living_in(spaces)) == sorted(holders(bed))
    assert living_in(spaces) == []


@pytest.mark.usefixtures("namespaces")
def test_nothing_is_left_when_a_command_fails() -> None:
    before = {child.pid for child in psutil.Process().children()}
    with pytest.raises(NoTestbed), opened(Network(congestion="yelling"), 2):
        pass
    assert {child.pid for child in psutil.Process().children()} <= before


@pytest.mark.usefixtures("namespaces")
def test_nobody_else_holds_the_pipe_that_keeps_a_namespace() -> None:
    with opened(Network(), 2) as bed, Ranks(wait, 2, bed=bed):
        pipes = {os.readlink(f"/proc/{holder}/fd/0") for holder in holders(bed)}
        assert len(pipes) == 3
        keepers = set()
        for link in Path("/proc").glob("[0-9]*/fd/*"):
            with suppress(OSError):
                if os.readlink(link) in pipes:
                    keepers.add(int(link.parts[2]))
        assert keepers == {os.getpid(), *holders(bed)}


def about_the_host() -> tuple[object, ...]:
    routes = Path("/proc/net/route").read_text()
    rules = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=False).stdout
    return socket.if_nameindex(), routes, rules


@pytest.mark.usefixtures("namespaces")
def test_the_hosts_own_namespace_is_not_touched() -> None:
    before = about_the_host()
    with opened(Network(rate_bits=1e9, loss=0.01), 2):
        assert about_the_host() == before


LAUNCHER = """
import os, signal
from multiprocessing import forkserver
from tweed.forkserver import server
from tweed.testbed import Network, Ranks, opened

server._preloads.clear()  # this one need not be warm

def wait(rank, size):
    signal.pause()

if __name__ == "__main__":
    with opened(Network(rate_bits=1e9, loss=0.01), 2) as bed:
        ranks = Ranks(wait, 2, bed=bed)
        pids = [vars(forkserver)["_forkserver"]._forkserver_pid, *(ranks.pid(rank) for rank in range(2))]
        pids += [bed._namespaces.holder(place) for place in range(-1, 2)]
        while any(os.readlink(f"/proc/{ranks.pid(rank)}/ns/net") != bed.hosts[rank].namespace
                  for rank in range(2)):
            pass
        print(*pids, *(host.namespace for host in bed.hosts), flush=True)
        ranks.poll()
"""


@pytest.mark.usefixtures("namespaces")
def test_a_launcher_that_is_killed_leaves_no_process_and_no_namespace(tmp_path: Path) -> None:
    words = words_of_killed(LAUNCHER, tmp_path)
    assert len(words) == 6 + 2
    assert gone([int(word) for word in words[:6]])
    assert living_in(set(words[6:])) == []


def listen(bed: LiveNetwork) -> None:
    with socket.create_server((bed.hosts[0].address, 5000)) as server:
        connection, _ = server.accept()
        with connection:
            while connection.recv(2**16):
                pass


def speak(bed: LiveNetwork) -> None:
    while True:
        with suppress(ConnectionRefusedError), socket.socket() as link:
            link.connect((bed.hosts[0].address, 5000))
            link.sendall(bytes(100_000))
            return


def forked(bed: LiveNetwork, rank: int, act: Callable[[LiveNetwork], None]) -> int:
    """Runs `act` in a child that lives in the namespace of `rank`; returns its id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _move_in(bed.home(rank))
            act(bed)
            code = 0
        except BaseException:  # noqa: BLE001 printed for whoever reads the test
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def without_rights(rank: int, size: int) -> tuple[bool, int, int]:
    """A launcher that is a plain user: builds a network, and sends 100,000 bytes over it."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    with opened(Network(rate_bits=1e9, loss=0.01), 2) as bed:
        children = [forked(bed, 0, listen), forked(bed, 1, speak)]
        failed = sum(os.waitpid(child, 0)[1] != 0 for child in children)
        return bed._namespaces.own_user, failed, bed.counters()[1].sent_bytes


@pytest.mark.usefixtures("namespaces")
def test_a_plain_user_builds_it_in_a_user_namespace() -> None:
    """The kernels and containers that forbid that say so in the error of this test."""
    ((own_user, failed, sent_bytes),) = run_ranks(without_rights, 1)
    assert own_user
    assert failed == 0
    assert sent_bytes > 100_000
