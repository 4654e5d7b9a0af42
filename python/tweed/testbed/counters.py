"""What the links themselves have counted, and whether that fits what was to be sent. Pure.

The figures are of the ranks' ends of the links: what left a rank after its queue, what reached it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass

from tweed.testbed.names import lost

#: Ethernet, IP and TCP around a full packet's payload of 1448 bytes. A packet of headers alone acknowledges.
HEADER_BYTES, PAYLOAD_BYTES = 66, 1448
#: Of what was sent, the share that may have been sent again.
_AGAIN = 0.25
#: What may be sent beside the payload: rendezvous, stores, figures.
ASIDE_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Counters:
    """One rank's link since it was made, or between two moments (`-`).

    Attributes:
      sent_bytes, received_bytes: with Ethernet's headers.
      sent_packets, received_packets: with offloads on (neither loss nor delay is asked for), several segments
        may count as one.
      lost_packets: sent by this rank and dropped by chance at the hub, or because a rank was cut off.
      overflowed_packets: dropped because a queue was full: this rank's own, or that towards it.
      duplicated_packets, reordered_packets: sent by this rank, and come twice or been overtaken.

    Example:
      >>> Counters(sent_bytes=9) - Counters(sent_bytes=4) == Counters(sent_bytes=5)
      True
    """

    sent_bytes: int = 0
    received_bytes: int = 0
    sent_packets: int = 0
    received_packets: int = 0
    lost_packets: int = 0
    overflowed_packets: int = 0
    duplicated_packets: int = 0
    reordered_packets: int = 0

    def __add__(self, other: Counters) -> Counters:
        return Counters(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, before: Counters) -> Counters:
        return Counters(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))

    def above(self, other: Counters) -> Counters:
        """What each count has more than `other`'s; 0 where it has less."""
        return Counters(*(max(0, mine) for mine in astuple(self - other)))


def link(text: str) -> Counters:
    """What a rank's `/proc/.../net/dev` says of its link, of all if it has several; not what was dropped."""
    names = [line.partition(":")[0].strip() for line in text.splitlines()[2:]]
    return sum((interface(text, name) for name in names if name != "lo"), Counters())


def interface(text: str, name: str) -> Counters:
    """What it says of one interface: bytes and packets."""
    line = next(line for line in text.splitlines() if line.strip().startswith(f"{name}:"))
    numbers = [int(word) for word in line.partition(":")[2].split()]
    return Counters(numbers[8], numbers[0], numbers[9], numbers[1])


def overflows(text: str) -> dict[str, int]:
    """Packets that found a queue full, by interface, from `tc -s -j qdisc show`."""
    return {entry["dev"]: int(entry["drops"]) for entry in json.loads(text) if entry["kind"] == "tbf"}


def losses(text: str, size: int) -> list[int]:
    """The packets from each rank that were lost by a rule, from `nft -j list counters`."""
    entries = (entry["counter"] for entry in json.loads(text)["nftables"] if "counter" in entry)
    packets = {entry["name"]: int(entry["packets"]) for entry in entries}
    return [packets.get(lost(rank), 0) for rank in range(size)]


def findings(
    expected: Mapping[str, int], counted: Mapping[str, Counters], aside_bytes: int = ASIDE_BYTES
) -> list[str]:
    """Names those whose links did not carry what they should have; nothing if all is well.

    Args:
      expected: by name ("rank 0", "all workers"), the payload in bytes that its schedules have it send:
        `Schedule.cost(numbytes).sent`.
      counted: by the same names, what the links have counted meanwhile.
      aside_bytes: what may have been sent beside.

    Links that carried less than the payload were gone round: by shared memory, or over another interface.
    Those that carried more than payload, headers, acknowledgements, `aside_bytes` and a quarter on top were
    used for something else, or for the same again and again.

    Example:
      >>> [text] = findings({"rank 0": 2_000_000}, {"rank 0": Counters(sent_bytes=500)})
      >>> text.endswith("The rest went round them")
      True
    """
    found = [_finding(who, payload, counted[who], aside_bytes) for who, payload in expected.items()]
    return [finding for finding in found if finding]


def _finding(who: str, payload: int, link: Counters, aside_bytes: int) -> str:
    story = f"{who}: {_mb(payload)} to send, {_mb(link.sent_bytes)} over the links"
    if link.sent_bytes < payload:
        return f"{story}. The rest went round them"
    most = _most(payload, link.received_packets) + aside_bytes
    return f"{story}. At most {_mb(most)} are explained" if link.sent_bytes > most else ""


def _most(payload: int, received_packets: int) -> int:
    in_packets = payload * (PAYLOAD_BYTES + HEADER_BYTES) / PAYLOAD_BYTES
    return round(in_packets * (1 + _AGAIN)) + received_packets * HEADER_BYTES


def _mb(numbytes: int) -> str:
    return f"{numbytes / 1e6:,.2f} MB"
