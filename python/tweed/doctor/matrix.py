"""What was measured between ranks, as a value and as JSON that a topology can be made of. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_PACKET_BYTES = 1448  # TCP's payload in an Ethernet frame


@dataclass(frozen=True, slots=True)
class Member:
    """A rank: where it runs and what it runs. `clock_s`: how far its clock is ahead of rank 0's, if known."""

    rank: int
    host: str
    address: str
    tweed: str
    torch: str
    clock_s: float | None = None
    clock_error_s: float | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a pair, through the engine: `via` is "tcp" or "shm".

    Attributes:
      bandwidth: bytes per second of payload, with nothing else going on.
      latency_s: one way, taken as half of the median round trip.
      rtt_median_s, rtt_p99_s: round trips of a small message there and back.
      carried_bytes: payload that was sent to measure.
      retransmitted: packets that were sent again meanwhile; None where that is not counted.
    """

    src: int
    dst: int
    via: str
    bandwidth: float
    latency_s: float
    rtt_median_s: float
    rtt_p99_s: float
    carried_bytes: int = 0
    retransmitted: int | None = None

    @property
    def sent_again(self) -> float | None:
        """The share of packets that were sent again, about: of as many full ones as the payload needs."""
        if self.retransmitted is None or self.carried_bytes == 0:
            return None
        return self.retransmitted / max(1.0, self.carried_bytes / _PACKET_BYTES)


@dataclass(frozen=True, slots=True)
class Matrix:
    """All ranks, and the links between them that were measured."""

    members: tuple[Member, ...]
    links: tuple[Link, ...]

    def topology(self) -> list[tuple[int, int, int, float]]:
        """As `tweed.Topology(ranks, links)` takes them: src, dst, bytes per second, seconds one way."""
        return [(link.src, link.dst, max(1, round(link.bandwidth)), link.latency_s) for link in self.links]

    def plain(self) -> dict[str, Any]:
        """The matrix as JSON has it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_plain(cls, value: Mapping[str, Any]) -> Matrix:
        """The inverse of `plain`."""
        members = tuple(Member(**member) for member in value["members"])
        return cls(members, tuple(Link(**link) for link in value["links"]))
