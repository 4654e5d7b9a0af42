"""The commands that build a network of namespaces. Pure: they are values, run by `namespaces`.

    rank 0 [tweed0] ── [rank0]┐
    rank 1 [tweed0] ── [rank1]┤ bridge     every pair of brackets is a pair of virtual Ethernet ends,
    rank 2 [tweed0] ── [rank2]┘ (hub)      the left one in the rank's namespace, the right one in the hub's

The rate is that of a token bucket at both ends of a pair: the left one for what a rank sends, the right one
for what it receives (`shaping`). Loss is decided in the hub, before the right one. Where packets are delayed,
the link emulator takes the bridge's place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tweed.errors import UsageError
from tweed.testbed.link import Direction
from tweed.testbed.names import HUB, INTERFACE, MOST_RANKS, SUBNET, address, ethernet, inner, port
from tweed.testbed.network import Network
from tweed.testbed.shaping import losses, masquerade, token_bucket

#: How much may leave at once after a pause.
BURST_MS = 1
_LEAST_BURST_BYTES = 4096  # two packets
_LEAST_OFFLOADED_BYTES = (
    72_000  # one as large as offloads make them; a bucket that is smaller would cut it up
)
#: Lets every packet cross as itself: else a drop takes up to 44 packets that cross as one.
NO_OFFLOADS = ("tso", "off", "gso", "off", "gro", "off", "tx-udp-segmentation", "off")


@dataclass(frozen=True, slots=True)
class Command:
    """A program to run in the namespace `place` (a rank or HUB), and what it reads from standard input."""

    place: int
    words: tuple[str, ...]
    text: str = ""


def commands(network: Network, holders: Sequence[int]) -> list[Command]:
    """All commands in the order in which they are run. Bridge or emulator are not among them (`joined`).

    Args:
      holders: by rank, the id of a process in the rank's namespace.

    Raises: UsageError for more than `MOST_RANKS`, and for a host that is none of the ranks.
    """
    ranks = range(len(holders))
    check_size(network, len(holders))
    build = [Command(HUB, ("ip", "-batch", "-"), _hub(holders))]
    build += [Command(rank, ("ip", "-batch", "-"), _rank(rank, network)) for rank in ranks]
    build += [Command(rank, ("nft", "-f", "-"), masquerade()) for rank in network.nat]
    if not network.emulated:
        build.append(joined(len(holders)))
    return build + shaped(network, len(holders))


def check_size(network: Network, size: int) -> None:
    """Raises UsageError if a testbed of `size` ranks cannot be such a network."""
    if size > MOST_RANKS:
        raise UsageError(f"a testbed has room for {MOST_RANKS} ranks, not {size}")
    if strangers := [rank for rank in (*network.hosts, *network.nat) if rank >= size]:
        raise UsageError(f"the network describes rank {strangers[0]}, and there are only {size} ranks")


def shaped(network: Network, size: int, before: Network | None = None) -> list[Command]:
    """What gives links their rates, queues and losses; `before` is what they were given last."""
    ranks = range(size)
    build = []
    if before is not None and network.congestion != before.congestion:
        build += [Command(rank, ("ip", "-batch", "-"), _route(rank, network, "replace")) for rank in ranks]
    if _packet_by_packet(network) and not (before and _packet_by_packet(before)):
        build += [Command(HUB, ("ethtool", "-K", port(rank), *NO_OFFLOADS)) for rank in ranks]
        build += [Command(rank, ("ethtool", "-K", INTERFACE, *NO_OFFLOADS)) for rank in ranks]
    if network.lossy or (before and before.lossy):
        build.append(Command(HUB, ("nft", "-f", "-"), losses(network, size)))
    least = _LEAST_OFFLOADED_BYTES if network.offload else _LEAST_BURST_BYTES
    down = [_bucket(port(rank), least, *_directions(rank, False, network, before)) for rank in ranks]
    if any(down):
        build.append(Command(HUB, ("tc", "-batch", "-"), batch([line for line in down if line])))
    for rank in ranks:
        if line := _bucket(INTERFACE, least, *_directions(rank, True, network, before)):
            build.append(Command(rank, ("tc", *line.split())))
    return build


def _directions(
    rank: int, up: bool, network: Network, before: Network | None
) -> tuple[Direction, Direction | None]:
    return network.direction(rank, up), None if before is None else before.direction(rank, up)


def joined(size: int, by_bridge: bool = True) -> Command:
    """Joins the hub's ports by the bridge, or takes them out of it."""
    how = "master hub" if by_bridge else "nomaster"
    return Command(
        HUB, ("ip", "-batch", "-"), batch([f"link set {port(rank)} {how}" for rank in range(size)])
    )


def _packet_by_packet(network: Network) -> bool:
    return network.lossy or (network.emulated and not network.offload)


def _hub(holders: Sequence[int]) -> str:
    lines = ["link add hub type bridge forward_delay 0 mcast_snooping 0", "link set hub addrgenmode none up"]
    for rank, holder in enumerate(holders):
        lines.append(f"link add {port(rank)} type veth peer name {INTERFACE} netns {holder}")
        lines.append(f"link set {port(rank)} addrgenmode none up")
    return batch(lines)


def _rank(rank: int, network: Network) -> str:
    lines = ["link set lo up", f"link set {INTERFACE} address {ethernet(rank)} addrgenmode none up"]
    lines.append(f"addr add {address(rank)}/24 dev {INTERFACE} noprefixroute")
    if rank in network.nat:
        lines.append(f"addr add {inner(rank)}/32 dev lo")
    return batch(lines) + _route(rank, network, "add")


def _route(rank: int, network: Network, how: str) -> str:
    """It pins the congestion control: a namespace may not choose its own default as it likes."""
    own = inner(rank) if rank in network.nat else address(rank)
    route = f"{SUBNET} dev {INTERFACE} src {own}"
    return f"route {how} {route} congctl {network.congestion}\n"


def _bucket(interface: str, least: int, now: Direction, before: Direction | None) -> str:
    if now.rate_bits is None or now.queue_bytes is None:
        return f"qdisc del dev {interface} root" if before and before.rate_bits is not None else ""
    burst = max(round(now.rate_bits / 8 * BURST_MS / 1000), least)
    return token_bucket(interface, now.rate_bits, now.queue_bytes, burst)


def batch(commands: Iterable[str]) -> str:
    """What a program reads that takes commands by lines."""
    return "".join(f"{command}\n" for command in commands)
