"""The commands that build a network of namespaces. Pure: they are values, run by `namespaces`.

    rank 0 [tweed0] ── [rank0]┐
    rank 1 [tweed0] ── [rank1]┤ bridge     every pair of brackets is a pair of virtual Ethernet ends,
    rank 2 [tweed0] ── [rank2]┘ (hub)      the left one in the rank's namespace, the right one in the hub's

The rate is that of a token bucket at both ends of a pair, so it holds in each direction. Loss is decided in
the bridge: a packet from rank to rank meets exactly one such rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tweed.errors import UsageError
from tweed.testbed.network import Network

#: The interface in each rank's namespace.
INTERFACE = "tweed0"
SUBNET = "10.77.0.0/24"
MOST_RANKS = 253
#: How long a byte waits at most in the queue before a link, and how much may leave at once after a pause.
QUEUE_MS, BURST_MS = 50, 1
_LEAST_BURST_BYTES = 4096  # two packets
#: Lets every packet cross as itself: else a drop takes up to 44 packets that travel as one.
_NO_OFFLOADS = ("tso", "off", "gso", "off", "gro", "off", "tx-udp-segmentation", "off")

#: The namespace of the bridge; those of the ranks are called by their numbers.
HUB = -1


@dataclass(frozen=True, slots=True)
class Command:
    """A program to run in the namespace `place` (a rank or HUB), and what it reads from standard input."""

    place: int
    words: tuple[str, ...]
    text: str = ""


def address(rank: int) -> str:
    """IPv4 address of a rank."""
    return f"10.77.0.{rank + 1}"


def port(rank: int) -> str:
    """The hub's end of a rank's pair."""
    return f"rank{rank}"


def commands(network: Network, holders: Sequence[int]) -> list[Command]:
    """All commands in the order in which they are run.

    Args:
      holders: by rank, the id of a process in the rank's namespace.

    Raises: UsageError for more than `MOST_RANKS`.
    """
    ranks = range(len(holders))
    if len(holders) > MOST_RANKS:
        raise UsageError(f"a testbed has room for {MOST_RANKS} ranks, not {len(holders)}")
    build = [Command(HUB, ("ip", "-batch", "-"), _hub(holders))]
    build += [Command(rank, ("ip", "-batch", "-"), _rank(rank, network)) for rank in ranks]
    if network.loss:
        build += [Command(HUB, ("ethtool", "-K", port(rank), *_NO_OFFLOADS)) for rank in ranks]
        build += [Command(rank, ("ethtool", "-K", INTERFACE, *_NO_OFFLOADS)) for rank in ranks]
        build.append(Command(HUB, ("nft", "-f", "-"), _losses(network, len(holders))))
    if network.rate_bits is not None:
        ports = "".join(f"{_bucket(port(rank), network.rate_bits)}\n" for rank in ranks)
        build.append(Command(HUB, ("tc", "-batch", "-"), ports))
        build += [Command(rank, ("tc", *_bucket(INTERFACE, network.rate_bits).split())) for rank in ranks]
    return build


def _hub(holders: Sequence[int]) -> str:
    lines = ["link add hub type bridge forward_delay 0 mcast_snooping 0", "link set hub addrgenmode none up"]
    for rank, holder in enumerate(holders):
        lines.append(f"link add {port(rank)} type veth peer name {INTERFACE} netns {holder}")
        lines.append(f"link set {port(rank)} master hub addrgenmode none up")
    return _lines(lines)


def _rank(rank: int, network: Network) -> str:
    """The route pins the congestion control: a namespace may not choose its own default as it likes."""
    own = address(rank)
    return _lines(
        [
            "link set lo up",
            f"link set {INTERFACE} addrgenmode none up",
            f"addr add {own}/24 dev {INTERFACE} noprefixroute",
            f"route add {SUBNET} dev {INTERFACE} src {own} congctl {network.congestion}",
        ]
    )


def _bucket(interface: str, rate_bits: float) -> str:
    burst = max(round(rate_bits / 8 * BURST_MS / 1000), _LEAST_BURST_BYTES)
    size = f"rate {round(rate_bits)}bit burst {burst} latency {QUEUE_MS}ms"
    return f"qdisc add dev {interface} root tbf {size}"


def _losses(network: Network, size: int) -> str:
    """Rules that pick packets by chance, and count them by sender. ARP gets through."""
    senders = [f'    iifname "{port(rank)}" counter drop' for rank in range(size)]
    return _lines(
        [
            "table bridge tweed {",
            "  chain lost {",
            *senders,
            "  }",
            "  chain crossing {",
            "    type filter hook forward priority 0",
            f"    ether type ip numgen random mod 1000000 < {network.loss_ppm} jump lost",
            "  }",
            "}",
        ]
    )


def _lines(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
