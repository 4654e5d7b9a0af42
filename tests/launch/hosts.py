"""Hosts in a testbed that are reached by ssh: each has a real sshd, with keys that were made for it."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tweed.testbed import LiveNetwork, Network, opened
from tweed.testbed.namespaces import program

_SERVER = """
ListenAddress {address}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
PidFile none
"""
_CLIENT = """
Host a
    HostName {addresses[0]}
Host b
    HostName {addresses[1]}
Host nobody
    HostName 10.77.0.99
Host c
    HostName {addresses[0]}
    IdentityFile {folder}/other
Host a b nobody
    IdentityFile {folder}/user
Host *
    User {user}
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known
    LogLevel ERROR
"""


@dataclass(frozen=True)
class Hosts:
    """Hosts "a" and "b", and a third one, without sshd, where the launcher is. "c" is "a" by a wrong key."""

    bed: LiveNetwork
    folder: Path

    @property
    def ssh(self) -> str:
        return f"{program('ssh')} -F {self.folder}/config"

    def start(self, *words: str, at: int = 2, **environment: str) -> subprocess.Popen[str]:
        """`tweed launch`, at a host by number."""
        command = [sys.executable, "-m", "tweed", "launch", "--ssh", self.ssh, *words]
        return subprocess.Popen(
            self.bed.command(at, *command),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=os.environ | environment,
            preexec_fn=_hears_ctrl_c,
        )

    def launch(self, *words: str, at: int = 2, **environment: str) -> tuple[int, str, str]:
        """Exit code, output and error stream of `tweed launch`."""
        launcher = self.start(*words, at=at, **environment)
        out, err = launcher.communicate(timeout=120)
        return launcher.returncode, out, err


def _make_keys(folder: Path) -> None:
    for name in ("host", "user", "other"):
        words = [program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True)


def _hears_ctrl_c() -> None:
    """Also where a shell has started the tests with `&`."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _server(bed: LiveNetwork, rank: int, config: Path) -> subprocess.Popen[str]:
    """An sshd that listens. What it logs later goes nowhere."""
    words = bed.command(rank, "sshd", "-D", "-e", "-f", str(config))
    server = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert server.stderr
    printed: list[str] = []
    with server.stderr as log:
        for line in log:
            if "Server listening" in line:
                return server
            printed.append(line)
    raise AssertionError(f"sshd does not start: {printed}")


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Hosts]:
    """Hosts that stand within the block. Skips where there is no sshd, or it could log nobody in."""
    if shutil.which(program("sshd")) is None:
        if "CI" in os.environ:
            raise AssertionError("CI has no sshd: tools/system.sh installs it")
        pytest.skip("no sshd: apt install openssh-server")
    if os.geteuid() != 0:
        pytest.skip("sshd logs users in only if it is root's")
    Path("/run/sshd").mkdir(exist_ok=True)
    _make_keys(folder)
    servers = []
    with opened(Network(rate_bits=1e9), 3) as bed:
        addresses = [host.address for host in bed.hosts]
        settings = {"folder": folder, "addresses": addresses, "user": getpass.getuser()}
        (folder / "config").write_text(_CLIENT.format(**settings))
        key = (folder / "host.pub").read_text()
        (folder / "known").write_text("".join(f"{address} {key}" for address in addresses))
        try:
            for rank in (0, 1):
                config = folder / f"sshd{rank}"
                config.write_text(_SERVER.format(folder=folder, address=addresses[rank]))
                servers.append(_server(bed, rank, config))
            yield Hosts(bed, folder)
        finally:
            for server in servers:
                server.terminate()
                server.wait()
