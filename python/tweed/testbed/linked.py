"""A network whose links are those of a `Topology`: built by `linked`, gone when its block ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tweed.collective.topology import Topology
from tweed.testbed import counters
from tweed.testbed.counters import Counters
from tweed.testbed.emulator import Emulator, Paths
from tweed.testbed.ground import Ground
from tweed.testbed.link import Direction
from tweed.testbed.names import toward
from tweed.testbed.namespaces import Namespaces, held, require
from tweed.testbed.wires import Wires, commands, port


class LinkedBed(Ground):
    """A testbed: hosts by rank, each with links to its neighbours alone. Made by `linked`.

    Attributes:
      topology: its links.
    """

    def __init__(self, wires: Wires, namespaces: Namespaces, seed: int, congestion: str) -> None:
        super().__init__(namespaces, wires.topology.ranks)
        self.topology = wires.topology
        self._congestion = congestion
        self._wires = wires
        if wires.ports:
            up = [_late(wires.latency_s[pair]) for pair in wires.ports]
            joined = Paths([port(number) for number in wires.ports.values()], up, [_late(0)] * len(up))
            self._emulator = Emulator(namespaces, joined, seed)

    @property
    def congestion(self) -> str:
        """The kernel's congestion control of all connections."""
        return self._congestion

    def carried(self) -> Mapping[tuple[int, int], Counters]:
        """By directed link, what its sending end has counted since the bed was made."""
        texts = {
            node: Path(f"/proc/{self._namespaces.holder(node)}/net/dev").read_text()
            for node in range(self.topology.nodes)
        }
        return {(a, b): counters.interface(texts[a], toward(b)) for a, b, *_ in self.topology.links}


@contextmanager
def linked(topology: Topology, congestion: str = "cubic", seed: int = 0) -> Iterator[LinkedBed]:
    """Builds a namespace for every node of `topology` and joins neighbours; takes it down after the block.

    A link's bandwidth counts Ethernet's headers. Latencies of half a millisecond and more are emulated;
    shorter ones are taken to be those of the machine.

    Args:
      congestion: the kernel's congestion control of all TCP connections.
      seed: of what the link emulator draws.

    Raises:
      UsageError: what cannot be built: a one-way link, too many nodes, a flat network.
      NoTestbed: it cannot be built here; says what to install or to allow. Nothing is left.

    Cost: some 20 ms per node, and a process per node that sleeps.
    """
    wires = Wires(topology)
    require(["unshare", "nsenter", "ip", "tc", "tee", *(["ethtool"] if wires.ports else [])])
    with held(topology.nodes) as namespaces:
        for command in commands(wires, namespaces.ranks, congestion):
            namespaces.run(command)
        bed = LinkedBed(wires, namespaces, seed, congestion)
        try:
            yield bed
        finally:
            bed.stop()


def _late(latency_s: float) -> Direction:
    return Direction(delay_us=round(latency_s * 1e6))
