"""What all networks that stand have in common: where ranks live in them, and the link emulator."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tweed.collective.topology import Topology
from tweed.testbed.emulator import Emulator
from tweed.testbed.names import INTERFACE, address
from tweed.testbed.namespaces import Namespaces, held, require
from tweed.testbed.rank_process import Home
from tweed.testbed.star_network import Command

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


class HostNetwork(ABC):
    """Hosts by rank, for `Ranks` to live in.

    Attributes:
      hosts: by rank.
    """

    def __init__(self, namespaces: Namespaces, size: int) -> None:
        self.hosts = tuple(_host(rank, namespaces) for rank in range(size))
        self._namespaces = namespaces
        self._emulator: Emulator | None = None
        self._ports = itertools.count(_FIRST_STORE_PORT)

    @property
    @abstractmethod
    def topology(self) -> Topology:
        """Its links, as planner and simulator take them; a star has a switch, node `size`."""

    @property
    @abstractmethod
    def congestion(self) -> str:
        """The kernel's congestion control of connections that are made now."""

    @property
    def size(self) -> int:
        """The number of hosts."""
        return len(self.hosts)

    def home(self, rank: int) -> Home:
        """What a process needs to become rank `rank`'s."""
        host = self.hosts[rank]
        environment = {
            "TWEED_HOST": host.address,
            "TWEED_TESTBED": host.namespace,
            "TWEED_CONGESTION": self.congestion,
            "GLOO_SOCKET_IFNAME": INTERFACE,
        }
        return Home(self._namespaces.paths(rank), environment)

    def store_port(self) -> int:
        """A port that no earlier group of ranks has used for its store."""
        return next(self._ports)

    @property
    def emulator_pid(self) -> int | None:
        """The link emulator's process, where there is one."""
        return None if self._emulator is None else self._emulator.pid

    def doubts(self) -> list[str]:
        """Why what was measured here may not count: the emulator did not keep up. Nothing if all is well."""
        return [] if self._emulator is None else self._emulator.report().doubts

    def stop(self) -> None:
        """Ends what the namespaces' holders do not end."""
        if self._emulator is not None:
            self._emulator.stop()

    def command(self, rank: int, *words: str) -> list[str]:
        """`words` as a command that runs in the namespace of `rank`; for programs such as iperf3."""
        return self._namespaces.inside(rank, *words)


B = TypeVar("B", bound=HostNetwork)


@contextmanager
def built(
    size: int, commands: Callable[[Sequence[int]], Sequence[Command]], bed: Callable[[Namespaces], B]
) -> Iterator[B]:
    """Holds `size` namespaces, runs the commands for their holders, and ends the bed after the block.

    Raises: NoTestbed if a program is missing or a command fails. Nothing is left.
    """
    require(["unshare", "nsenter", *(command.words[0] for command in commands([0] * size))])
    with held(size) as namespaces:
        for command in commands(namespaces.ranks):
            namespaces.run(command)
        found = bed(namespaces)
        try:
            yield found
        finally:
            found.stop()


def _host(rank: int, namespaces: Namespaces) -> Host:
    path = Path(f"/proc/{namespaces.holder(rank)}/ns/net")
    return Host(rank, address(rank), str(path.readlink()))
