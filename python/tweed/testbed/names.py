"""What things of a testbed are called. Pure."""

from __future__ import annotations

#: The interface in each rank's namespace.
INTERFACE = "tweed0"
SUBNET = "10.77.0.0/24"
MOST_RANKS = 253

#: The namespace of the bridge; those of the ranks are called by their numbers.
HUB = -1


def address(rank: int) -> str:
    """IPv4 address of a rank."""
    return f"10.77.0.{rank + 1}"


def inner(rank: int) -> str:
    """What a rank behind NAT takes for its own address; others see `address`, and cannot call it."""
    return f"10.78.0.{rank + 1}"


def ethernet(rank: int) -> str:
    """Ethernet address of a rank. The emulator knows ranks by it (`crates/emu/src/frame.rs`)."""
    return f"02:74:77:65:64:{rank + 1:02x}"


def port(rank: int) -> str:
    """The hub's end of a rank's pair of interfaces."""
    return f"rank{rank}"


def toward(node: int) -> str:
    """Where links are those of a topology: a node's interface towards its neighbour `node`."""
    return f"to{node}"


def lost(rank: int) -> str:
    """The counter of packets from a rank that were lost by a rule."""
    return f"lost{rank}"
