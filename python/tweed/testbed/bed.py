"""A network that stands: built by `opened`, gone when its block ends or its launcher is no more."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tweed.errors import NoTestbed, UsageError
from tweed.testbed import counters
from tweed.testbed.counters import Counters
from tweed.testbed.inside import Home
from tweed.testbed.namespaces import Namespaces, held, require
from tweed.testbed.network import Network
from tweed.testbed.star import HUB, INTERFACE, Command, address, commands, port

_FIRST_STORE_PORT = 29500


@dataclass(frozen=True, slots=True)
class Host:
    """Where one rank lives.

    Attributes:
      address: its IPv4 address.
      namespace: its network namespace as the kernel names it, "net:[4026532273]".
    """

    rank: int
    address: str
    namespace: str


@dataclass(frozen=True, slots=True)
class Bed:
    """A testbed: hosts by rank, and what their links have counted. Made by `opened`."""

    network: Network
    hosts: tuple[Host, ...]
    _namespaces: Namespaces
    _ports: Iterator[int] = field(default_factory=lambda: itertools.count(_FIRST_STORE_PORT))

    @property
    def size(self) -> int:
        """Number of hosts."""
        return len(self.hosts)

    def home(self, rank: int) -> Home:
        """What a process needs to become rank `rank`'s."""
        host = self.hosts[rank]
        environment = {
            "TWEED_HOST": host.address,
            "TWEED_TESTBED": host.namespace,
            "TWEED_CONGESTION": self.network.congestion,
            "GLOO_SOCKET_IFNAME": INTERFACE,
        }
        return Home(self._namespaces.paths(rank), environment)

    def store_port(self) -> int:
        """A port that no earlier group of ranks has used for its store."""
        return next(self._ports)

    def command(self, rank: int, *words: str) -> list[str]:
        """`words` as a command that runs in the namespace of `rank`; for programs such as iperf3."""
        return self._namespaces.inside(rank, *words)

    def counters(self) -> list[Counters]:
        """By rank, what its link has counted since the bed was made. Cost: some milliseconds per rank."""
        lost = self._lost()
        overflowed = self._overflowed(HUB)
        found = []
        for rank in range(self.size):
            text = Path(f"/proc/{self._namespaces.holder(rank)}/net/dev").read_text()
            full = overflowed.get(port(rank), 0) + self._overflowed(rank).get(INTERFACE, 0)
            dropped = Counters(lost_packets=lost.get(port(rank), 0), overflowed_packets=full)
            found.append(counters.link(text) + dropped)
        return found

    def _lost(self) -> dict[str, int]:
        if not self.network.loss:
            return {}
        words = ("nft", "-j", "list", "chain", "bridge", "tweed", "lost")
        return counters.losses(self._namespaces.run(Command(HUB, words)))

    def _overflowed(self, place: int) -> dict[str, int]:
        if self.network.rate_bits is None:
            return {}
        words = ("tc", "-s", "-j", "qdisc", "show")
        return counters.overflows(self._namespaces.run(Command(place, words)))


@contextmanager
def opened(network: Network, size: int) -> Iterator[Bed]:
    """Builds `network` for `size` ranks, and takes it down at the end of the block.

    Raises:
      UsageError: a size that makes no sense.
      NoTestbed: it cannot be built here; says what to install or to allow. Nothing is left.

    Cost: some 20 ms per rank, and a process per rank that sleeps.
    """
    if size < 1:
        raise UsageError(f"a testbed for {size} ranks is none: at least one is needed")
    places = commands(network, [0] * size)
    require(["unshare", "nsenter", *(command.words[0] for command in places)])
    with held(size) as namespaces:
        for command in commands(network, namespaces.ranks):
            _run(namespaces, command, network)
        yield Bed(network, tuple(_host(rank, namespaces) for rank in range(size)), namespaces)


def _run(namespaces: Namespaces, command: Command, network: Network) -> None:
    try:
        namespaces.run(command)
    except NoTestbed as error:
        if "congestion" not in str(error):
            raise
        offered = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().strip()
        raise NoTestbed(f"no congestion control {network.congestion!r} here; there are {offered}") from error


def _host(rank: int, namespaces: Namespaces) -> Host:
    path = Path(f"/proc/{namespaces.holder(rank)}/ns/net")
    return Host(rank, address(rank), str(path.readlink()))
