"""What one link does, as a value, and each of its directions with nothing left open. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tweed.errors import UsageError

#: The finest probability that is told from none.
PPM = 10**6
#: How long a byte waits at most in the queue before a link, unless the network says so.
QUEUE_MS = 50.0
_MOST_MS = 10_000
_CHANCES = ("loss", "reorder", "duplicate")
_TIMES = ("delay_ms", "jitter_ms")
_GIVEN = ("rate_bits", "loss", "burst", "delay_ms", "jitter_ms", "reorder", "duplicate")
#: These hold in both directions; all else only upwards, unless `down` says so.
_BOTH_WAYS = ("rate_bits", "queue_ms", "queue_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What a link does. None: as the network says for all links; there, nothing.

    A rate and a queue hold in both directions. Everything else strikes a packet on its way up to the hub, so
    once between two workers; what `down` says strikes also those that come down. So a round trip takes the
    sum of both ends' delays.

    Attributes:
      rate_bits: bits per second, in each direction, Ethernet headers included.
      queue_ms, queue_bytes: the queue before the link: how long a byte waits in it at most, or its size.
      delay_ms: how much later a packet arrives.
      jitter_ms: the delay varies by so much in either direction, at most by itself. Packets keep their order.
      loss: probability that an IP packet is lost; whole parts per million, as are the next two.
      burst: mean number of packets lost in a row; None or 1: each is lost or not for itself.
      reorder: probability that a packet is held back by up to 2 ms, and overtaken.
      duplicate: probability that a packet arrives twice.
      up, down: what only holds in one direction. It goes before the rest.

    Raises: UsageError for a value that makes no sense.

    Example:
      >>> Link(rate_bits=1e9, loss=0.001).loses
      True
    """

    rate_bits: float | None = None
    queue_ms: float | None = None
    queue_bytes: int | None = None
    delay_ms: float | None = None
    jitter_ms: float | None = None
    loss: float | None = None
    burst: float | None = None
    reorder: float | None = None
    duplicate: float | None = None
    up: Link | None = None
    down: Link | None = None

    def __post_init__(self) -> None:
        if self.rate_bits is not None:
            if not 10**4 <= self.rate_bits <= 10**11:
                raise UsageError(f"a rate of {self.rate_bits:g} bit/s is not between 10kbit and 100gbit")
            self._set("rate_bits", round(self.rate_bits))
        for name in _CHANCES:
            self._set(name, _chance(name, getattr(self, name)))
        for name in _TIMES:
            self._set(name, _time(name.removesuffix("_ms"), getattr(self, name)))
        self._check_queue()
        if self.burst is not None and not 1 <= self.burst <= 10**4:
            raise UsageError(f"a burst of {self.burst:g} packets is not between 1 and 10000")
        for one in (self.up, self.down):
            if one is not None and (one.up or one.down):
                raise UsageError("up and down are directions: give them no up or down of their own")
        for name in ("up", "down"):
            if getattr(self, name) is not None and getattr(self, name) == Link():
                self._set(name, None)

    def _check_queue(self) -> None:
        if self.queue_ms is not None and self.queue_bytes is not None:
            raise UsageError("a queue is given in ms or in bytes, not both")
        if self.queue_ms is not None and not 0 < self.queue_ms <= _MOST_MS:
            raise UsageError(f"a queue of {self.queue_ms:g} ms is not above 0 and at most {_MOST_MS} ms")
        if self.queue_bytes is not None and not 1600 <= self.queue_bytes <= 2**30:
            raise UsageError(f"a queue of {self.queue_bytes} bytes is not between 1600 (a packet) and 1 GiB")

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def does_more(self) -> bool:
        """Whether it does what the kernel's own queues and rules cannot do."""
        own = (self.delay_ms, self.jitter_ms, self.reorder, self.duplicate, (self.burst or 1) > 1)
        return any(own) or any(one.does_more for one in (self.up, self.down) if one is not None)

    @property
    def loses(self) -> bool:
        """Whether it loses packets."""
        return bool(self.loss) or any(one.loses for one in (self.up, self.down) if one is not None)


def _chance(name: str, value: float | None) -> float | None:
    if value is None:
        return None
    if not 0 <= value < 1:
        raise UsageError(f"a {name} of {value:g} is not at least 0 and below 1 (write 0.1% or 0.001)")
    if value and value * PPM < 0.5:
        raise UsageError(f"a {name} of {value:g} is too small: the least is one packet in a million")
    return round(value * PPM) / PPM


def _time(name: str, value: float | None) -> float | None:
    if value is None:
        return None
    if not 0 <= value <= _MOST_MS:
        raise UsageError(f"a {name} of {value:g} ms is not between 0 and {_MOST_MS} ms")
    return float(round(Decimal(str(value)), 3))


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction of a link: up to the hub, or down from it.

    Attributes:
      rate_bits: None: as fast as the machine can.
      queue_bytes: room before the link; None without a rate.
      loss_ppm: packets lost of a million.
      burst: mean number lost in a row; at 1, each is lost for itself.
    """

    rate_bits: int | None = None
    queue_bytes: int | None = None
    loss_ppm: int = 0
    burst: float = 1
    delay_us: int = 0
    jitter_us: int = 0
    reorder_ppm: int = 0
    duplicate_ppm: int = 0

    @property
    def lost_by_rule_ppm(self) -> int:
        """What a rule in the kernel loses; the emulator does bursts."""
        return self.loss_ppm if self.burst == 1 else 0


def resolved(host: Link | None, network: Link, up: bool) -> Direction:
    """One direction of a host's link: as `host` where that gives a value, otherwise as `network`."""
    given = {name: _given(host, network, up, name) for name in _GIVEN}
    rate = given["rate_bits"]
    return Direction(
        rate_bits=None if rate is None else round(rate),
        queue_bytes=None if rate is None else _queue(host, network, up, rate),
        loss_ppm=_ppm(given["loss"]),
        burst=float(given["burst"] or 1),
        delay_us=round((given["delay_ms"] or 0) * 1000),
        jitter_us=round((given["jitter_ms"] or 0) * 1000),
        reorder_ppm=_ppm(given["reorder"]),
        duplicate_ppm=_ppm(given["duplicate"]),
    )


def _given(host: Link | None, network: Link, up: bool, name: str) -> float | None:
    """The first value that is given: the host's go before the network's, a direction's before a link's."""
    for place in (*_places(host, up, name), *_places(network, up, name)):
        if (value := getattr(place, name)) is not None:
            return float(value)
    return None


def _places(link: Link | None, up: bool, name: str) -> list[Link]:
    if link is None:
        return []
    found = [link.up if up else link.down]
    if up or name in _BOTH_WAYS:
        found.append(link)
    return [place for place in found if place is not None]


def _queue(host: Link | None, network: Link, up: bool, rate_bits: float) -> int:
    for place in (*_places(host, up, "queue_ms"), *_places(network, up, "queue_ms")):
        if place.queue_bytes is not None:
            return place.queue_bytes
        if place.queue_ms is not None:
            return _in_bytes(place.queue_ms, rate_bits)
    return _in_bytes(QUEUE_MS, rate_bits)


def _in_bytes(queue_ms: float, rate_bits: float) -> int:
    return max(1600, round(rate_bits / 8 * queue_ms / 1000))


def _ppm(probability: float | None) -> int:
    return round((probability or 0) * PPM)
