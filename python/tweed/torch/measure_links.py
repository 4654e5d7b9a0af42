"""What the wires of a new group can do, measured by messages over them, and a plan that fits.

Rank 0 exchanges a few messages with a few of the ranks that it reaches over wires, plans for the slowest, and
sends the plan to all. A probe so short is coarse: it tells a long link from a short one, 100 Mbit/s from 10.
What was measured holds for a while: a group that the same processes make anew, as when one of them was lost,
has its plan at once.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection, Mapping, Sequence
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
_HOLDS_S = 600.0  # networks change
_ENOUGH_S = 5.0  # where much is lost, each message takes seconds, and the first few have shown it
#: A long message that has not crossed by then is looked into, for so long.
_STUCK_S, _LOOK_S = 8.0, 4.0


@dataclass(frozen=True)
class Probe:
    """Round trips to one rank, in seconds: of short messages, and with so many bytes on the way out."""

    short_s: Sequence[float]
    long_bytes: int
    long_s: Sequence[float]


def link_of(probe: Probe) -> Links:
    """The link that was probed."""
    short = median(probe.short_s)
    return Links(latency_s=short / 2, bandwidth=probe.long_bytes / max(min(probe.long_s) - short, 1e-6))


def slowest(links: Collection[Links]) -> Links:
    """The worst of each."""
    return Links(latency_s=max(one.latency_s for one in links), bandwidth=min(one.bandwidth for one in links))


class Measured:
    """Links to other processes, as they were measured last: of the process itself, or of a group with it."""

    def __init__(self) -> None:
        self._links: dict[str, tuple[float, Links]] = {}

    def note(self, descriptor: bytes, links: Links, then: float) -> None:
        """They were measured then. What is newer stays; what does not hold any more is forgotten."""
        uid = _uid(descriptor)
        self._links = {known: (at, one) for known, (at, one) in self._links.items() if then - at < _HOLDS_S}
        if uid not in self._links or self._links[uid][0] < then:
            self._links[uid] = then, links

    def link(self, descriptor: bytes, now: float) -> tuple[float, Links] | None:
        """To that process, and when that was measured; None: it is not known."""
        found = self._links.get(_uid(descriptor))
        return found if found is not None and now - found[0] < _HOLDS_S else None

    def links(self, descriptors: Sequence[bytes], now: float | None = None) -> Links | None:
        """The slowest to all of them; None: one is not known."""
        now = time.monotonic() if now is None else now
        found = [one for descriptor in descriptors if (one := self.link(descriptor, now)) is not None]
        return slowest([links for _, links in found]) if len(found) == len(descriptors) else None


def _uid(descriptor: bytes) -> str:
    uid: str = json.loads(descriptor)["uid"]
    return uid


MEASURED = Measured()


@dataclass(frozen=True)
class _Watched:
    """Messages of a group, and what is called while they are waited for."""

    group: Group
    watch: Watch
    descriptors: Sequence[bytes]
    of_members: bool

    def doubting(self, rank: int, short_s: float) -> _Watched:
        """These messages, watched for more: a long message to `rank` that takes long raises, if no long
        packet reaches that rank."""
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

    def note(self, worst: Links | None, then: float) -> None:
        """What is known of all members, and since when, for the groups that they make later."""
        if self.of_members and worst is not None:
            for descriptor in self.descriptors:
                MEASURED.note(descriptor, worst, then)

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
    *,
    of_members: bool = False,
) -> Plan:
    """Measures what is not known, plans, and has all ranks of `group` run by the plan. All must call it.

    Args:
      group: a new one.
      overrules: builders by collective that are not chosen.
      watch: called some times a second; what it raises ends it. A rank that has not come to the group at all
        is no part of it, so the group cannot tell of it.
      descriptors: of its ranks (`Node.descriptor`).
      missing: pairs of ranks that had better not send to each other.
      of_members: that come and go: any of them may have rank 0 next, and takes what the worst link can do for
        what is known of all.

    Raises: DeadlineExceeded where short messages cross and long ones do not; at rank 0, which tells why.
    """
    watched = _Watched(group, watch, descriptors, of_members)
    chosen = _lead(watched, overrules, missing) if group.rank == 0 else _follow(watched)
    group.adopt(chosen.rows())
    return chosen


def _lead(watched: _Watched, overrules: Mapping[str, str], missing: Sequence[tuple[int, int]]) -> Plan:
    group = watched.group
    found = _found(watched)
    worst = slowest([links for _, links in found.values()]) if found else None
    chosen = plan(group.size, worst or NETWORK, overrules, missing)
    oldest = min((then for then, _ in found.values()), default=0.0)
    age_s = time.monotonic() - oldest
    message = json.dumps([chosen.to_json(), worst and (worst.latency_s, worst.bandwidth), age_s])
    text = torch.frombuffer(bytearray(message.encode()), dtype=torch.uint8)
    for rank in range(1, group.size):
        watched.send(rank, torch.tensor([-len(text)]))
        watched.send(rank, text)
    for rank, (then, links) in found.items():
        MEASURED.note(watched.descriptors[rank], links, then)
    watched.note(worst, oldest)
    return chosen


def _found(watched: _Watched) -> dict[int, tuple[float, Links]]:
    """The links that are known, and a few others, which are probed: by rank, and when each was measured."""
    now, links, found = time.monotonic(), watched.group.links, dict[int, tuple[float, Links]]()
    wires = [rank for rank, link in enumerate(links) if link not in ("self", "shm", "relay")]
    for rank in wires:
        if (link := MEASURED.link(watched.descriptors[rank], now)) is not None:
            found[rank] = link
    for rank in [rank for rank in wires if rank not in found][:_PEERS]:
        if not found or time.monotonic() < now + _ENOUGH_S:
            found[rank] = now, link_of(_probe(watched, rank, now + _ENOUGH_S))
    return found


def _follow(watched: _Watched) -> Plan:
    """Answers what rank 0 probes with. Its length comes before each message; that of the plan is negative."""
    while (length := int(watched.receive(0, torch.empty(1, dtype=torch.int64)).item())) > 0:
        watched.receive(0, torch.empty(length, dtype=torch.uint8))
        watched.send(0, torch.empty(1))
    text = watched.receive(0, torch.empty(-length, dtype=torch.uint8))
    chosen, worst, age_s = json.loads(bytes(text.tolist()))
    watched.note(worst and Links(*worst), time.monotonic() - age_s)
    return Plan.from_json(chosen)


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
