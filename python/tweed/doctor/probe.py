"""Two ranks exchange messages over the engine, as `estimate` asks for. The lower rank leads. Impure."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from tweed.doctor import estimate
from tweed.doctor.estimate import Clock, Piece, Trip
from tweed.doctor.matrix import Link
from tweed.torch.messages import receive, send

if TYPE_CHECKING:
    from tweed._core import Group

_TRIPS, _TRIPS_S = 100, 0.2  # as many as fit, within so many seconds
_LEAST_TRIPS = 5
_WARM = 2  # the first trips find cold caches and sleeping threads


@dataclass(frozen=True, slots=True)
class Way:
    """One direction, as its sender saw it: bytes per second, bytes in all, packets sent again."""

    rate: float
    carried_bytes: int
    again: int


def lead(group: Group, peer: int) -> tuple[list[Link], Clock]:
    """Measures both directions to `peer`, which must call `follow`; about a second.

    Returns: the link to it and the link back, and its clock against ours.
    """
    trips = _trips(group, peer)
    rtts = [trip.took_s for trip in trips]
    median = estimate.percentile(rtts, 0.5)
    _say(group, peer, median)
    out = _outgoing(group, peer, median)
    back = _incoming(group, peer)
    p99, via = estimate.percentile(rtts, 0.99), group.links[peer]
    ends = [(group.rank, peer, out), (peer, group.rank, back)]
    links = [
        Link(src, dst, via, way.rate, median / 2, median, p99, way.carried_bytes, _retransmissions(via, way))
        for src, dst, way in ends
    ]
    return links, estimate.clock(trips)


def _retransmissions(via: str, way: Way) -> int | None:
    return way.again if via == "tcp" else None


def follow(group: Group, peer: int) -> None:
    """The other rank's part of `lead`."""
    _answer_trips(group, peer)
    rtt = _receive(group, peer)
    _incoming(group, peer)
    _outgoing(group, peer, rtt)


def _trips(group: Group, peer: int) -> list[Trip]:
    trips: list[Trip] = []
    began = time.monotonic()
    while len(trips) < _WARM + _LEAST_TRIPS or (len(trips) < _TRIPS and time.monotonic() - began < _TRIPS_S):
        sent, steady = time.time(), time.monotonic()
        _say(group, peer, 1.0)
        there = _receive(group, peer)
        trips.append(Trip(sent, there, time.time(), time.monotonic() - steady))
    _say(group, peer, 0.0)
    return trips[_WARM:]


def _answer_trips(group: Group, peer: int) -> None:
    while _receive(group, peer):
        _say(group, peer, time.time())


def _outgoing(group: Group, peer: int, rtt_s: float) -> Way:
    """From here to `peer`: pieces that grow until they are long enough."""
    pieces: list[Piece] = []
    before = _again(group, peer)
    while size := estimate.next_bytes(pieces, rtt_s):
        message = torch.zeros(size, dtype=torch.uint8)
        _say(group, peer, float(size))
        began = time.monotonic()
        send(group, peer, message)
        _receive(group, peer)
        pieces.append(Piece(size, time.monotonic() - began))
    _say(group, peer, 0.0)
    carried = sum(piece.size for piece in pieces)
    way = Way(estimate.rate(pieces, rtt_s), carried, _again(group, peer) - before)
    for value in (way.rate, way.carried_bytes, way.again):
        _say(group, peer, value)
    return way


def _again(group: Group, peer: int) -> int:
    """Packets sent again to `peer` so far."""
    return int(group.metrics().stats()[peer]["retransmissions"])


def _incoming(group: Group, peer: int) -> Way:
    """The other side of `_outgoing`; returns what it measured."""
    while size := int(_receive(group, peer)):
        receive(group, peer, torch.empty(size, dtype=torch.uint8))
        _say(group, peer, 0.0)
    return Way(_receive(group, peer), int(_receive(group, peer)), int(_receive(group, peer)))


def _say(group: Group, peer: int, value: float) -> None:
    send(group, peer, torch.tensor([value], dtype=torch.float64))


def _receive(group: Group, peer: int) -> float:
    return float(receive(group, peer, torch.empty(1, dtype=torch.float64)).item())
