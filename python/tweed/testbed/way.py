"""What one direction of one host's link does, with nothing left open. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tweed.testbed.link import PPM, QUEUE_MS, Link

#: These hold in both directions; all else only on the way up, unless `down` says so.
_BOTH_WAYS = ("rate_bits", "queue_ms", "queue_bytes")


@dataclass(frozen=True, slots=True)
class Way:
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


def resolved(host: Link | None, network: Link, up: bool) -> Way:
    """The way of a host that has `host` for its own, in a network whose links are otherwise as `network`."""
    said = {name: _said(host, network, up, name) for name in _NAMES}
    rate = said["rate_bits"]
    return Way(
        rate_bits=None if rate is None else round(rate),
        queue_bytes=None if rate is None else _queue(host, network, up, rate),
        loss_ppm=_ppm(said["loss"]),
        burst=float(said["burst"] or 1),
        delay_us=round((said["delay_ms"] or 0) * 1000),
        jitter_us=round((said["jitter_ms"] or 0) * 1000),
        reorder_ppm=_ppm(said["reorder"]),
        duplicate_ppm=_ppm(said["duplicate"]),
    )


_NAMES = ("rate_bits", "loss", "burst", "delay_ms", "jitter_ms", "reorder", "duplicate")


def _said(host: Link | None, network: Link, up: bool, name: str) -> float | None:
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
