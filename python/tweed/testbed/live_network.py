"""Networks that stand: built by `opened`, gone when its block ends or its launcher is no more."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

from tweed.collective.topology import Topology
from tweed.errors import UsageError
from tweed.testbed import counters
from tweed.testbed.counters import Counters
from tweed.testbed.emulator import Emulator, Paths, Report, paths
from tweed.testbed.host_network import HostNetwork, built
from tweed.testbed.link import Direction
from tweed.testbed.names import HUB, INTERFACE, inner, port, toward
from tweed.testbed.namespaces import Namespaces, require
from tweed.testbed.network import Network
from tweed.testbed.rank_process import Home
from tweed.testbed.shaping import losses
from tweed.testbed.star_network import Command, check_size, commands, joined, shaped
from tweed.testbed.topology_network import TopologyNetwork
from tweed.testbed.topology_network import commands as topology_commands
from tweed.testbed.topology_network import port as topology_port


class LiveNetwork(HostNetwork):
    """A testbed: hosts by rank, and what their links have counted. Made by `opened`.

    Attributes:
      network: what it is like now.
      hosts: by rank.
    """

    def __init__(self, network: Network, namespaces: Namespaces, seed: int) -> None:
        super().__init__(namespaces, len(namespaces.ranks))
        self.network = network
        self._seed = seed
        if network.emulated:
            self._emulator = Emulator(namespaces, paths(network, self.size), seed)
        self._cut: set[int] = set()
        self._ways: list[tuple[int, int]] = []
        self._ruled = network.lossy
        self._past = [Counters()] * self.size

    def home(self, rank: int) -> Home:
        """As in `HostNetwork`; a rank behind NAT has its inner address, and only dials out."""
        home = super().home(rank)
        if rank not in self.network.nat:
            return home
        own = {"TWEED_HOST": inner(rank), "TWEED_DIAL_ONLY": "1"}
        return replace(home, environment=home.environment | own)

    @property
    def topology(self) -> Topology:
        """The star as it is now. Raises: UsageError where a link has no rate."""
        return self.network.topology(self.size)

    @property
    def congestion(self) -> str:
        """The kernel's congestion control of connections that are made now."""
        return self.network.congestion

    def change(self, network: Network) -> None:
        """Makes the links those of `network`, while ranks run.

        Packets on their way arrive as they were to; where the link emulator begins or ends its work, they are
        lost. A new congestion control is for connections that are made afterwards. Segmentation offloads that
        an earlier network has switched off stay off.

        Raises:
          UsageError: a host that is none of the ranks, or others behind NAT.
          NoTestbed: a program that is needed only now is missing, or what is asked for is not there.
        """
        check_size(network, self.size)
        if network.nat != self.network.nat:
            raise UsageError("an open testbed cannot change which ranks are behind NAT: open another one")
        steps = shaped(network, self.size, self.network)
        require([step.words[0] for step in steps])
        before = self._passing()
        self._run_emulator(network)
        for step in steps:
            self._namespaces.run(step)
        self.network = network
        self._ruled |= network.lossy
        if self._cut or self._ways:
            self._set_rules()
        self._past = [
            past + was.above(now) for past, was, now in zip(self._past, before, self._passing(), strict=True)
        ]

    def _run_emulator(self, network: Network) -> None:
        """Starts, changes or ends the emulator; two cannot join the ports at once."""
        again = self._emulator is not None and network.offload != self.network.offload
        if self._emulator is not None and (again or not network.emulated):
            self._emulator.stop()
            self._emulator = None
            if not network.emulated:
                self._namespaces.run(joined(self.size))
        elif self._emulator is not None:
            self._emulator.change(paths(network, self.size))
        if self._emulator is None and network.emulated:
            self._namespaces.run(joined(self.size, by_bridge=False))
            self._emulator = Emulator(self._namespaces, paths(network, self.size), self._seed)

    def cut(self, rank: int) -> None:
        """Loses every packet from and to `rank`, until it is healed. Its packets count as lost.

        Raises: UsageError for a rank that is not there; NoTestbed if `nft` is missing.
        """
        self._check(rank)
        self._cut.add(rank)
        self._set_rules()

    def heal(self, rank: int) -> None:
        """Gives `rank` its link back."""
        self._cut.discard(rank)
        self._set_rules()

    def cut_way(self, sender: int, receiver: int) -> None:
        """Loses every packet from one rank to another, until `heal_way` has been called as often.

        Raises: as `cut`.
        """
        self.cut_ways([(sender, receiver)])

    def heal_way(self, sender: int, receiver: int) -> None:
        """Takes back one `cut_way`."""
        self.heal_ways([(sender, receiver)])

    def cut_ways(self, ways: Collection[tuple[int, int]]) -> None:
        """`cut_way` of each of these, all at one moment."""
        for way in ways:
            self._check(*way)
        self._ways += ways
        self._set_rules()

    def heal_ways(self, ways: Collection[tuple[int, int]]) -> None:
        """Takes back `cut_ways`, at one moment too."""
        for way in ways:
            self._ways.remove(way)
        self._set_rules()

    def _check(self, *ranks: int) -> None:
        for rank in ranks:
            if not 0 <= rank < self.size:
                raise UsageError(f"there is no rank {rank} in a testbed of {self.size}")
        require(["nft"])

    def _set_rules(self) -> None:
        script = losses(self.network, self.size, sorted(self._cut), sorted(set(self._ways)))
        self._namespaces.run(Command(HUB, ("nft", "-f", "-"), script))
        self._ruled = True

    def counters(self) -> list[Counters]:
        """What each rank's link has counted since the bed was made. Cost: some milliseconds per rank."""
        found = []
        for rank, counted in enumerate(zip(self._past, self._passing(), self._lost(), strict=True)):
            text = Path(f"/proc/{self._namespaces.holder(rank)}/net/dev").read_text()
            found.append(sum(counted, counters.link(text)))
        return found

    def emulated(self) -> Report:
        """What the link emulator has done since it runs; nothing where there is none."""
        return Report((Counters(),) * self.size) if self._emulator is None else self._emulator.report()

    def _lost(self) -> list[Counters]:
        if not self._ruled:
            return [Counters()] * self.size
        words = ("nft", "-j", "list", "counters", "table", "netdev", "tweed")
        lost = counters.losses(self._namespaces.run(Command(HUB, words)), self.size)
        return [Counters(lost_packets=packets) for packets in lost]

    def _passing(self) -> list[Counters]:
        """What is counted by things that may go before the bed does."""
        down = self._overflowed(HUB)
        found = []
        for rank, more in enumerate(self.emulated().hosts):
            full = down.get(port(rank), 0) + self._overflowed(rank).get(INTERFACE, 0)
            found.append(more + Counters(overflowed_packets=full))
        return found

    def _overflowed(self, place: int) -> dict[str, int]:
        if not self.network.slowed:
            return {}
        words = ("tc", "-s", "-j", "qdisc", "show")
        return counters.overflows(self._namespaces.run(Command(place, words)))


class LiveTopologyNetwork(HostNetwork):
    """A testbed: hosts by rank, each with links to its neighbours alone. Made by `opened`."""

    def __init__(self, network: TopologyNetwork, namespaces: Namespaces, seed: int, congestion: str) -> None:
        super().__init__(namespaces, network.topology.ranks)
        self._congestion, self._network = congestion, network
        if network.ports:
            up = [Direction(delay_us=round(network.latency_s[pair] * 1e6)) for pair in network.ports]
            ends = [topology_port(number) for number in network.ports.values()]
            self._emulator = Emulator(namespaces, Paths(ends, up, [Direction()] * len(up)), seed)

    @property
    def topology(self) -> Topology:
        """What it was built from."""
        return self._network.topology

    @property
    def congestion(self) -> str:
        """The kernel's congestion control of all connections."""
        return self._congestion

    def carried(self) -> Mapping[tuple[int, int], Counters]:
        """What the sending end of each directed link has counted since the bed was made."""
        holders = map(self._namespaces.holder, range(self.topology.nodes))
        texts = [Path(f"/proc/{holder}/net/dev").read_text() for holder in holders]
        return {(a, b): counters.interface(texts[a], toward(b)) for a, b, *_ in self.topology.links}


@overload
def opened(network: Network, size: int, seed: int = 0) -> AbstractContextManager[LiveNetwork]: ...
@overload
def opened(
    network: Topology, *, seed: int = 0, congestion: str = "cubic"
) -> AbstractContextManager[LiveTopologyNetwork]: ...
def opened(
    network: Network | Topology, size: int | None = None, seed: int = 0, congestion: str = "cubic"
) -> AbstractContextManager[Any]:
    """Builds a network, and takes it down at the end of the `with` block.

    A `Network` is a star whose links can change and be cut while it stands; its switch is a bridge, or the
    link emulator where packets are delayed. Of a `Topology` every node has a namespace, switches included,
    and links to its neighbours alone. There a link's bandwidth counts Ethernet's headers, and latencies of
    half a millisecond and more are emulated; shorter ones are taken to be those of the machine.

    Args:
      network: what to build.
      size: ranks of a `Network`, 1 or more; a `Topology` has its own.
      seed: of what the link emulator draws.
      congestion: the kernel's congestion control of all TCP connections; a `Network` has its own.

    Raises:
      UsageError: a size that makes no sense, or a network that describes hosts beyond it; of a topology, a
        one-way link, too many nodes, or a flat network.
      NoTestbed: it cannot be built here; says what to install or to allow. Nothing is left.

    Cost: some 20 ms per node, and a process per node that sleeps.

    Example, where namespaces can be made:

        with opened(Network.parse("wan"), 4) as bed:
            bed.cut(2)
        with opened(topology.star(4)) as bed:
            bed.carried()
    """
    if isinstance(network, Topology):
        described = TopologyNetwork(network)
        return built(
            network.nodes,
            lambda holders: topology_commands(described, holders, congestion),
            lambda namespaces: LiveTopologyNetwork(described, namespaces, seed, congestion),
        )
    if size is None or size < 1:
        raise UsageError(f"cannot open a testbed for {size} ranks: at least one is needed")
    return built(
        size,
        lambda holders: commands(network, holders),
        lambda namespaces: LiveNetwork(network, namespaces, seed),
    )


def linked(
    topology: Topology, congestion: str = "cubic", seed: int = 0
) -> AbstractContextManager[LiveTopologyNetwork]:
    """`opened`, for a topology alone: see there."""
    return opened(topology, seed=seed, congestion=congestion)
