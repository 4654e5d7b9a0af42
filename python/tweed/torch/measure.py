"""What the wires of a new group can do, measured by messages over them, and a plan that fits.

Rank 0 exchanges a few messages with a few of the ranks that it reaches over wires, plans for the slowest, and
sends the plan to all. A probe so short is coarse: it tells a long link from a short one, 100 Mbit/s from 10.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tweed.collective import NETWORK, Links, Plan, plan
from tweed.errors import DeadlineExceeded
from tweed.torch import long_packets
from tweed.torch.messages import Watch, receive, send

if TYPE_CHECKING:
    from tweed._core import Group

_PEERS = 4
_SHORT = 5  # round trips of next to nothing
_LONG_BYTES = 2**14, 2**17  # what one carries; and two more, where that has come through soon
_SOON_S = 0.25
_ENOUGH_S = 5.0  # where much is lost, each message takes seconds, and the first few have shown it
#: A long message that has not crossed by then is looked into, for so long.
_STUCK_S, _LOOK_S = 8.0, 4.0


@dataclass(frozen=True)
class Probe:
    """Round trips to one rank, in seconds: of short messages, and with so many bytes on the way out."""

    short_s: Sequence[float]
    long_bytes: int
    long_s: Sequence[float]


def links_of(probes: Sequence[Probe]) -> Links:
    """The slowest of the links that were probed."""
    latencies = [median(probe.short_s) / 2 for probe in probes]
    carried = [max(min(probe.long_s) - median(probe.short_s), 1e-6) for probe in probes]
    bandwidths = [probe.long_bytes / seconds for probe, seconds in zip(probes, carried, strict=True)]
    return Links(latency_s=max(latencies), bandwidth=min(bandwidths))


@dataclass(frozen=True)
class _Watched:
    """Messages of a group, and what is called while they are waited for."""

    group: Group
    watch: Watch
    descriptors: Sequence[bytes]

    def doubting(self, rank: int, short_s: float) -> _Watched:
        """The same, where a long message to `rank` that takes long raises, if no long packet reaches it."""
        end = time.monotonic() + _STUCK_S

        def look() -> None:
            nonlocal end
            self.watch()
            if time.monotonic() > end:
                end = math.inf
                address = json.loads(self.descriptors[rank])["tcp"]
                if address and not long_packets.cross(address, _LOOK_S):
                    raise DeadlineExceeded(self._stuck(rank, short_s))

        return replace(self, watch=look)

    def _stuck(self, rank: int, short_s: float) -> str:
        here, there = _in_words(self.descriptors[0]), _in_words(self.descriptors[rank])
        return (
            f"short messages from rank 0 on {here} to rank {rank} on {there} cross and are answered within "
            f"{short_s * 1000:.1f} ms, and one of {_LONG_BYTES[0]} bytes was not in {_STUCK_S:.0f} s, nor "
            f"did any come over new connections in {_LOOK_S:.0f} s: long packets are lost on the way, as "
            "where a tunnel's MTU is below the interface's, and a firewall drops the ICMP that says so. On "
            "both hosts: sudo sysctl -w net.ipv4.tcp_mtu_probing=1, or a smaller MTU: sudo ip link set dev "
            "INTERFACE mtu 1280; `ping -M do -s 1472 ADDRESS` shows it"
        )

    def send(self, rank: int, message: Tensor) -> None:
        send(self.group, rank, message, self.watch)

    def receive(self, rank: int, message: Tensor) -> Tensor:
        return receive(self.group, rank, message, self.watch)


def agree(
    group: Group,
    overrules: Mapping[str, str],
    watch: Watch,
    descriptors: Sequence[bytes],
    missing: Sequence[tuple[int, int]] = (),
) -> Plan:
    """Measures, plans, and has all ranks of `group` run by the plan. All ranks must call it.

    Args:
      group: a new one.
      overrules: builders by collective that are not chosen.
      watch: called some times a second; what it raises ends it. A rank that has not come to the group at all
        is no part of it, so the group cannot tell of it.
      descriptors: of its ranks (`Node.descriptor`).
      missing: pairs of ranks that had better not send to each other.

    Raises: DeadlineExceeded where short messages cross and long ones do not; at rank 0, which tells why.
    """
    watched = _Watched(group, watch, descriptors)
    chosen = _lead(watched, overrules, missing) if group.rank == 0 else _follow(watched)
    group.adopt(chosen.rows())
    return chosen


def _lead(watched: _Watched, overrules: Mapping[str, str], missing: Sequence[tuple[int, int]]) -> Plan:
    group = watched.group
    wires = [rank for rank, link in enumerate(group.links) if link not in ("self", "shm", "relay")][:_PEERS]
    probes: list[Probe] = []
    enough = time.monotonic() + _ENOUGH_S
    for rank in wires:
        if not probes or time.monotonic() < enough:
            probes.append(_probe(watched, rank, enough))
    chosen = plan(group.size, links_of(probes) if probes else NETWORK, overrules, missing)
    text = torch.frombuffer(bytearray(chosen.to_json().encode()), dtype=torch.uint8)
    for rank in range(1, group.size):
        watched.send(rank, torch.tensor([-len(text)]))
        watched.send(rank, text)
    return chosen


def _follow(watched: _Watched) -> Plan:
    """Answers what rank 0 probes with. Its length comes before each message; that of the plan is negative."""
    while (length := int(watched.receive(0, torch.empty(1, dtype=torch.int64)).item())) > 0:
        watched.receive(0, torch.empty(length, dtype=torch.uint8))
        watched.send(0, torch.empty(1))
    text = watched.receive(0, torch.empty(-length, dtype=torch.uint8))
    return Plan.from_json(bytes(text.tolist()).decode())


def _probe(watched: _Watched, rank: int, enough: float) -> Probe:
    short = [_round_trip(watched, rank, 1)]
    while len(short) < _SHORT and time.monotonic() < enough:
        short.append(_round_trip(watched, rank, 1))
    less, more = _LONG_BYTES
    first = _round_trip(watched.doubting(rank, median(short)), rank, less)
    if first - median(short) > _SOON_S:
        return Probe(short, less, [first])
    return Probe(short, more, [_round_trip(watched, rank, more) for _ in range(2)])


def _in_words(descriptor: bytes) -> str:
    """Where a rank is: its host, and the address at which others call it."""
    known = json.loads(descriptor)
    return f"{known['host']} ({known['tcp'] or 'calls others only'})"


def _round_trip(watched: _Watched, rank: int, length: int) -> float:
    message = torch.empty(length, dtype=torch.uint8)
    began = time.monotonic()
    watched.send(rank, torch.tensor([length]))
    watched.send(rank, message)
    watched.receive(rank, torch.empty(1))
    return time.monotonic() - began
