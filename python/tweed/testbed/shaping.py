"""How the kernel holds a link to its rate, and loses some of its packets: text for `tc` and `nft`. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tweed.testbed import names
from tweed.testbed.link import PPM
from tweed.testbed.network import Network


def token_bucket(interface: str, rate_bits: int, queue_bytes: int, burst_bytes: int) -> str:
    """The line for `tc` that gives one direction of a link its rate, at the interface that sends.

    Args:
      rate_bits: per second, Ethernet headers included.
      queue_bytes: room for packets that wait.
      burst_bytes: how much may leave at once after a pause.
    """
    limit = queue_bytes + burst_bytes
    return f"qdisc replace dev {interface} root tbf rate {rate_bits}bit burst {burst_bytes} limit {limit}"


def losses(
    network: Network, size: int, cut: Collection[int] = (), ways: Collection[tuple[int, int]] = ()
) -> str:
    """A script for the packet filter that loses packets by chance, all of a host, or all from one to another.

    It puts its rules in the place of those before, and keeps what was counted.

    The rules sit at the hub's ports, behind a packet's delay and before the receiver's queue, and count by
    sender. ARP gets through, but not from and to the ranks in `cut`,
    and from the first to the second rank of each pair in `ways`.
    """
    ranks = range(size)
    ports = ", ".join(f'"{names.port(rank)}"' for rank in ranks)
    lines = [
        "add table netdev tweed",
        *(f"add counter netdev tweed {names.lost(rank)}" for rank in ranks),
        "flush table netdev tweed",
        "table netdev tweed {",
        "  chain lost {",
        *(f'    {_from(rank)} counter name "{names.lost(rank)}" drop' for rank in ranks),
        "    drop",
        "  }",
        "  chain crossing {",
        f"    type filter hook egress devices = {{ {ports} }} priority 0",
        *(f"    ether saddr {names.ethernet(rank)} jump lost" for rank in cut),
        *(f"    {_to(rank)} jump lost" for rank in cut),
        *(f"    ether saddr {names.ethernet(one)} {_to(other)} jump lost" for one, other in ways),
        *(f"    {match}{_chance(ppm)} jump lost" for match, ppm in _chances(network, size)),
        "  }",
        "}",
    ]
    return "".join(f"{line}\n" for line in lines)


def masquerade() -> str:
    """A script for the packet filter of a rank behind NAT: what it sends comes from its router's address, and
    nothing comes in that is no answer."""
    return f"""
table ip tweed_nat {{
  chain leaving {{
    type nat hook postrouting priority srcnat
    oifname "{names.INTERFACE}" masquerade
  }}
  chain entering {{
    type filter hook input priority filter
    iifname "{names.INTERFACE}" ct state new drop
  }}
}}
"""


def _chances(network: Network, size: int) -> Iterator[tuple[str, int]]:
    """What to match, and how many of a million to lose. One rule for all senders where they are alike."""
    up = [network.direction(rank, up=True).lost_by_rule_ppm for rank in range(size)]
    if len(set(up)) == 1:
        yield from [("meta protocol ip ", up[0])] if up[0] else []
    else:
        yield from ((f"{_from(rank)} ", ppm) for rank, ppm in enumerate(up) if ppm)
    for rank in range(size):
        if ppm := network.direction(rank, up=False).lost_by_rule_ppm:
            yield f"meta protocol ip {_to(rank)} ", ppm


def _chance(ppm: int) -> str:
    return f"numgen random mod {PPM} < {ppm}"


def _from(rank: int) -> str:
    return f"ip saddr {names.address(rank)}"


def _to(rank: int) -> str:
    return f'oifname "{names.port(rank)}"'
