"""Network namespaces without names, held by processes that end when this one does.

Each namespace is held by a `cat` that reads from a pipe. When the pipe's other end closes, because the
launcher closed it or died in whatever way, `cat` leaves. With the last process in it a namespace is gone, and
with it its interfaces, queues and rules. The launcher's own namespace is never touched.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tweed.errors import NoTestbed
from tweed.testbed.names import HUB
from tweed.testbed.star_network import Command

_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
_PACKAGES = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "tc": "iproute2",
    "ethtool": "ethtool",
    "nft": "nftables",
}
#: What a kernel or a distribution may have closed, when it has, and the words that open it.
_LOCKS = {
    "kernel/unprivileged_userns_clone": ("0", "sysctl kernel.unprivileged_userns_clone=1"),
    "kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    "user/max_user_namespaces": ("0", "sysctl user.max_user_namespaces=1000"),
    "user/max_net_namespaces": ("0", "sysctl user.max_net_namespaces=1000"),
}


@dataclass(frozen=True, slots=True)
class Namespaces:
    """The hub's namespace and one per rank, as ids of the processes that hold them."""

    hub: int
    ranks: tuple[int, ...]
    own_user: bool  # they belong to an own user namespace, which who enters them must enter first

    def holder(self, place: int) -> int:
        """The process that holds the namespace `place`: a rank, or HUB."""
        return self.hub if place == HUB else self.ranks[place]

    def paths(self, place: int) -> tuple[str, ...]:
        """What a process opens to enter `place` by `setns`, in this order."""
        kinds = ("user", "net") if self.own_user else ("net",)
        return tuple(f"/proc/{self.holder(place)}/ns/{kind}" for kind in kinds)

    def inside(self, place: int, *words: str) -> list[str]:
        """The command `words` as a command that runs in `place`."""
        kinds = ("--user", "--net") if self.own_user else ("--net",)
        return [*_enter(self.holder(place), *kinds), program(words[0]), *words[1:]]

    def run(self, command: Command) -> str:
        """Runs a command and returns what it wrote.

        Raises: NoTestbed if it fails; gives the command and its words.
        """
        words = self.inside(command.place, *command.words)
        done = subprocess.run(words, input=command.text, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            error = (done.stderr or done.stdout).strip()
            if (asked := re.search(r"congctl (\w+)", command.text)) and "congestion" in error:
                offered = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().strip()
                raise NoTestbed(f"no congestion control {asked[1]!r} here; there are {offered}")
            raise NoTestbed(f"cannot build the network: `{' '.join(command.words)}` says: {error}")
        return done.stdout


def program(name: str) -> str:
    """Path of a program; a plain user's PATH may lack the folders of the system's own."""
    return shutil.which(name, path=_PATH) or name


def require(programs: Sequence[str]) -> None:
    """Raises NoTestbed if one of `programs` is not installed; names the packages."""
    missing = sorted({name for name in programs if shutil.which(name, path=_PATH) is None})
    if missing:
        packages = " ".join(sorted({_PACKAGES[name] for name in missing}))
        raise NoTestbed(f"a network of namespaces needs {', '.join(missing)}: apt install {packages}")


@contextmanager
def held(size: int) -> Iterator[Namespaces]:
    """Holds a hub's and `size` ranks' namespaces, with nothing in them yet.

    In the launcher's user namespace if it may do that (root may), else in a user namespace of its own.

    Raises: NoTestbed if the kernel allows neither; says what would.
    """
    holders: list[subprocess.Popen[bytes]] = []
    try:
        own_user = _hold_hub(holders)
        within = _enter(holders[0].pid, "--user") if own_user else []
        for _ in range(size):
            holders.append(_hold([*within, program("unshare"), "--net"]))
        hub, *ranks = (holder.pid for holder in holders)
        yield Namespaces(hub, tuple(ranks), own_user)
    finally:
        for holder in holders:
            _let_go(holder)


def _enter(holder: int, *kinds: str) -> list[str]:
    keep = ["--preserve-credentials"] if "--user" in kinds else []
    return [program("nsenter"), "--target", str(holder), *kinds, *keep]


def _hold_hub(holders: list[subprocess.Popen[bytes]]) -> bool:
    """Appends the hub's holder; tells whether it needed a user namespace of its own."""
    try:
        holders.append(_hold([program("unshare"), "--net"]))
        return False
    except NoTestbed as error:
        plainly = error
    try:
        holders.append(_hold([program("unshare"), "--user", "--map-root-user", "--net"]))
        return True
    except NoTestbed as error:
        tried = f"{plainly}; in a user namespace: {error}"
        raise NoTestbed(f"no network namespace can be made here ({tried}). {advice()}") from None


def _hold(words: Sequence[str]) -> subprocess.Popen[bytes]:
    """Starts `cat` in new namespaces. Not before they are there does it give back what it is sent."""
    pipe = subprocess.PIPE
    # A process group of its own: Ctrl-C is for the launcher.
    holder = subprocess.Popen([*words, "cat"], stdin=pipe, stdout=pipe, stderr=pipe, process_group=0)
    assert holder.stdin and holder.stdout and holder.stderr
    with suppress(BrokenPipeError):
        holder.stdin.write(b"\n")
        holder.stdin.flush()
    if holder.stdout.read(1) != b"\n":
        error = holder.stderr.read().decode(errors="replace").strip()
        _let_go(holder)
        raise NoTestbed(error)
    return holder


def _let_go(holder: subprocess.Popen[bytes]) -> None:
    with suppress(BrokenPipeError):
        holder.communicate()


def advice(folder: Path = Path("/proc/sys")) -> str:
    """What would let a plain user make namespaces here, as far as the system's settings tell."""
    found = [
        cure
        for name, (locked, cure) in _LOCKS.items()
        if (folder / name).exists() and (folder / name).read_text().strip() == locked
    ]
    if found:
        return f"As root: {'; '.join(found)}"
    return "Run as root; in a container, start it with the right to do that (docker run --privileged)"
