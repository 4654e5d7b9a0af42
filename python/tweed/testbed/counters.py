"""What the links themselves have counted, and whether that fits what was to be sent. Pure.

The figures are of the ranks' ends of the links: what left a rank after its queue, what reached it.
"""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass

from tweed.testbed.star import INTERFACE


@dataclass(frozen=True, slots=True)
class Counters:
    """One rank's link since it was made, or between two moments (`-`).

    Attributes:
      sent_bytes, received_bytes: with Ethernet's headers.
      sent_packets, received_packets: with offloads on (no loss asked for), several segments may count as one.
      lost_packets: sent by this rank and dropped by chance at the hub.
      overflowed_packets: dropped because a queue was full: this rank's own, or that towards it.
    """

    sent_bytes: int = 0
    received_bytes: int = 0
    sent_packets: int = 0
    received_packets: int = 0
    lost_packets: int = 0
    overflowed_packets: int = 0

    def __add__(self, other: Counters) -> Counters:
        return Counters(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, before: Counters) -> Counters:
        return Counters(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))


def link(text: str) -> Counters:
    """What a rank's `/proc/.../net/dev` says of its link: bytes and packets, but not what was dropped."""
    line = next(line for line in text.splitlines() if line.strip().startswith(f"{INTERFACE}:"))
    numbers = [int(word) for word in line.partition(":")[2].split()]
    return Counters(numbers[8], numbers[0], numbers[9], numbers[1])


def overflows(text: str) -> dict[str, int]:
    """Packets that found a queue full, by interface, from `tc -s -j qdisc show`."""
    return {entry["dev"]: int(entry["drops"]) for entry in json.loads(text) if entry["kind"] == "tbf"}


def losses(text: str) -> dict[str, int]:
    """Packets lost by chance, by the sender's port, from `nft -j list chain`."""
    rules = [entry["rule"]["expr"] for entry in json.loads(text)["nftables"] if "rule" in entry]
    return {match["match"]["right"]: int(count["counter"]["packets"]) for match, count, _ in rules}
