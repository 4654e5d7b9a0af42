"""The commands that build a network whose links are those of a `Topology`. Pure: values, run by `namespaces`.

    [rank 0: to1] ──────────── [to0: rank 1]            a link that is as late as the machine itself
    [rank 0: to2] ── [p0] emulator [p1] ── [to0: rank 2]    one with a delay: both its ends are in the hub

Every node, switches included, has a namespace, and in it one interface per neighbour and no other. A token
bucket at the sending end holds each direction's bandwidth. Nodes hand on what is not for them, along fixed
paths: those with the fewest links, of equals the lowest (`topology.shortest_paths`). So stores and handshakes
reach everybody, and what goes between ranks that are no neighbours takes the links of a routed schedule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tweed.collective.topology import Topology
from tweed.collective.topology.base import shortest_paths
from tweed.errors import UsageError
from tweed.testbed.link import QUEUE_MS
from tweed.testbed.names import HUB, INTERFACE, MOST_RANKS, address, toward
from tweed.testbed.shaping import token_bucket
from tweed.testbed.star_network import NO_OFFLOADS, Command, batch

#: Shorter latencies are not emulated: the machine's own is about as long.
LEAST_DELAY_S = 500e-6
#: How much may pass at once after a pause: one packet, or what takes so long.
_BURST_S, _LEAST_BURST_BYTES = 100e-6, 1600
#: From this bandwidth on, packets as large as offloads make them pass whole: cutting them up costs a lot.
_FAST, _OFFLOADED_BYTES = 50_000_000, 72_000
_LEAST_QUEUE_BYTES = 64 << 10
_SETTINGS = {"ip_forward": 1, "tcp_slow_start_after_idle": 0}


@dataclass(frozen=True)
class TopologyNetwork:
    """A topology as a testbed sees it.

    Raises: UsageError for what cannot be built: a one-way link, too many nodes, a flat network without links.
    """

    topology: Topology

    def __post_init__(self) -> None:
        if self.topology.is_complete:
            raise UsageError("a flat network has no links of its own to build; use Network(rate_bits=...)")
        if self.topology.nodes > MOST_RANKS:
            raise UsageError(f"a testbed has room for {MOST_RANKS} nodes, not {self.topology.nodes}")
        for a, b in self.latency_s:
            if (b, a) not in self.latency_s:
                raise UsageError(f"the link from {a} to {b} has no way back, which TCP needs: add {b} to {a}")

    @cached_property
    def latency_s(self) -> Mapping[tuple[int, int], float]:
        """The latency of each directed link in seconds."""
        return {(a, b): latency_s for a, b, _, latency_s, _ in self.topology.links}

    @cached_property
    def bandwidth(self) -> Mapping[tuple[int, int], int]:
        """The bytes per second of each directed link; of links side by side, all together."""
        return {(a, b): bandwidth * count for a, b, bandwidth, _, count in self.topology.links}

    @cached_property
    def neighbours(self) -> Mapping[int, Sequence[int]]:
        """The nodes that each node has a link to, by its number."""
        found: dict[int, list[int]] = {node: [] for node in range(self.topology.nodes)}
        for a, b in self.latency_s:
            found[a].append(b)
        return found

    @cached_property
    def ports(self) -> Mapping[tuple[int, int], int]:
        """The number that each end of a link with a delay has among the hub's ports."""
        late = {pair for pair, latency_s in self.latency_s.items() if latency_s >= LEAST_DELAY_S}
        ends = (pair for a, b in sorted(self.latency_s) if a < b for pair in ((a, b), (b, a)))
        kept = [pair for pair in ends if pair in late or pair[::-1] in late]
        if len(kept) > MOST_RANKS:
            raise UsageError(f"a testbed can delay {MOST_RANKS // 2} links, not {len(kept) // 2}")
        return {pair: number for number, pair in enumerate(kept)}


def commands(network: TopologyNetwork, holders: Sequence[int], congestion: str) -> list[Command]:
    """All commands in the order in which they are run.

    Args:
      holders: by node, the id of a process in its namespace.
      congestion: the kernel's congestion control of all TCP connections.
    """
    nodes = range(network.topology.nodes)
    build = [Command(HUB, ("ip", "-batch", "-"), _delayed(network, holders))] if network.ports else []
    plain = ((node, _plain(network, node, holders)) for node in nodes)
    build += [Command(node, ("ip", "-batch", "-"), text) for node, text in plain if text]
    if network.ports:
        up = (f"link set {port(number)} addrgenmode none up" for number in network.ports.values())
        build.append(Command(HUB, ("ip", "-batch", "-"), batch(up)))
    build += [Command(node, ("ip", "-batch", "-"), _node(network, node, congestion)) for node in nodes]
    build += [
        Command(node, ("tee", f"/proc/sys/net/ipv4/{name}"), str(value))
        for node in nodes
        for name, value in _SETTINGS.items()
    ]
    build += [
        Command(HUB, ("ethtool", "-K", port(number), *NO_OFFLOADS)) for number in network.ports.values()
    ]
    build += [Command(a, ("ethtool", "-K", toward(b), *NO_OFFLOADS)) for a, b in network.ports]
    buckets = {node: batch(_bucket(network, node, b) for b in network.neighbours[node]) for node in nodes}
    return build + [Command(node, ("tc", "-batch", "-"), text) for node, text in buckets.items()]


def port(number: int) -> str:
    """The hub's interface behind one end of a link with a delay."""
    return f"p{number}"


def ethernet(network: TopologyNetwork, node: int, neighbour: int) -> str:
    """Address of a node's end of a link. The emulator knows ports by it (`crates/emu/src/frame.rs`)."""
    number = network.ports.get((node, neighbour))
    if number is None:
        return f"02:74:77:00:{node:02x}:{neighbour:02x}"
    return f"02:74:77:65:64:{number + 1:02x}"


def _delayed(network: TopologyNetwork, holders: Sequence[int]) -> str:
    return batch(
        f"link add {port(number)} type veth peer name {toward(b)} netns {holders[a]}"
        for (a, b), number in network.ports.items()
    )


def _plain(network: TopologyNetwork, node: int, holders: Sequence[int]) -> str:
    """Links to later neighbours that go past the hub."""
    later = (b for b in network.neighbours[node] if b > node and (node, b) not in network.ports)
    return batch(f"link add {toward(b)} type veth peer name {toward(node)} netns {holders[b]}" for b in later)


def _node(network: TopologyNetwork, node: int, congestion: str) -> str:
    """The node's address, its interfaces, whom they lead to, and by which of them it reaches whom.

    The address is that of a bridge without ports: it belongs to no link. Neighbours' Ethernet addresses are
    fixed: a question of ARP would reach all ends of links with a delay.
    """
    lines = ["link set lo up", f"link add name {INTERFACE} type bridge"]
    lines += [f"link set {INTERFACE} addrgenmode none up", f"addr add {address(node)}/32 dev {INTERFACE}"]
    for other in network.neighbours[node]:
        interface = toward(other)
        lines.append(f"link set {interface} address {ethernet(network, node, other)} addrgenmode none up")
        mac = ethernet(network, other, node)
        lines.append(f"neigh add {address(other)} lladdr {mac} nud permanent dev {interface}")
    return batch([*lines, *_routes(network, node, congestion)])


def _routes(network: TopologyNetwork, node: int, congestion: str) -> Iterator[str]:
    for other, between in sorted(shortest_paths(network.topology, node).items()):
        if other != node:
            after = (*between, other)[0]
            via = f"via {address(after)} dev {toward(after)} onlink"
            yield f"route add {address(other)}/32 {via} src {address(node)} congctl {congestion}"


def _bucket(network: TopologyNetwork, node: int, neighbour: int) -> str:
    interface, bandwidth = toward(neighbour), network.bandwidth[node, neighbour]
    whole = bandwidth >= _FAST and (node, neighbour) not in network.ports
    burst = max(round(bandwidth * _BURST_S), _OFFLOADED_BYTES if whole else _LEAST_BURST_BYTES)
    queue = max(round(bandwidth * QUEUE_MS / 1000), _LEAST_QUEUE_BYTES)
    return token_bucket(interface, bandwidth * 8, queue, burst)
