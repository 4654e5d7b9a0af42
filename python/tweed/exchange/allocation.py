"""Radio links shared by clients: who gets which subchannel, and with which power. Pure.

A client's rate is Shannon's, over its subchannels: `sum of B log2(1 + p g / (N0 B))`, with the bandwidth B of
each, the power p on it and its gain g. Times of a round are the greatest over clients, so that a subchannel
helps most where it helps the slowest one.

Source: Lin et al., "Efficient parallel split learning over resource-constrained wireless edge networks", IEEE
  TMC 2024, section V; water-filling: Cover and Thomas, "Elements of information theory", 2nd edition, 9.4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tweed.errors import UsageError

Real = NDArray[np.float64]
_HALVINGS = 30


@dataclass(frozen=True, slots=True)
class Radio:
    """What clients have in common, and what each has.

    Attributes:
      gains: `[clients, subchannels]`, of power.
      bandwidth_hz: of a subchannel.
      noise_w_hz: power of noise per hertz.
      client_w: power that a client may send with at most.
      total_w: that all clients may send with together.
      server_w: that the server sends with on each subchannel.
    """

    gains: Real
    bandwidth_hz: float = 10e6
    noise_w_hz: float = 4e-21
    client_w: float = 0.2
    total_w: float = 0.6
    server_w: float = 1.0

    @property
    def clients(self) -> int:
        """How many there are."""
        return len(self.gains)

    def quality(self, client: int, channels: Sequence[int]) -> Real:
        """`[channels]`, the ratio of signal to noise per watt."""
        found: Real = self.gains[client, list(channels)] / (self.noise_w_hz * self.bandwidth_hz)
        return found

    def down_rate(self, client: int, channels: Sequence[int]) -> float:
        """Bits per second from the server over these subchannels."""
        return float(self.bandwidth_hz * np.log2(1 + self.server_w * self.quality(client, channels)).sum())

    def up_rate(self, client: int, channels: Sequence[int], power_w: float) -> float:
        """Bits per second to the server, with the power spread as is best."""
        quality = self.quality(client, channels)
        return float(self.bandwidth_hz * np.log2(1 + water_filled(quality, power_w) * quality).sum())


class Allocation(NamedTuple):
    """Whose each subchannel is, `[subchannels]`, and each client's power, `[clients]`, in watts."""

    owners: tuple[int, ...]
    powers: tuple[float, ...]

    def channels(self, client: int) -> list[int]:
        """The subchannels of a client."""
        return [channel for channel, owner in enumerate(self.owners) if owner == client]


def water_filled(quality: Real, power: float) -> Real:
    """How a power is best spread over channels: each gets what it lacks to one level, or nothing.

    Args:
      quality: `[channels]`, the ratio of signal to noise per watt, above 0.

    Example:
      >>> water_filled(np.array([1.0, 0.5]), 3.0).tolist()  # to the level 3
      [2.0, 1.0]
    """
    floors = np.sort(1 / quality)
    levels = (power + np.cumsum(floors)) / np.arange(1, len(floors) + 1)
    used = int(np.flatnonzero(levels >= floors)[-1])  # the first one always is
    spread: Real = np.maximum(0.0, levels[used] - 1 / quality)
    return spread


def spread_evenly(radio: Radio) -> Allocation:
    """Subchannels go round, and all clients have the same power."""
    count = radio.gains.shape[1]
    if count < radio.clients:
        raise UsageError(f"{radio.clients} clients cannot share {count} subchannels: each needs one")
    power = min(radio.client_w, radio.total_w / radio.clients)
    return Allocation(tuple(k % radio.clients for k in range(count)), (power,) * radio.clients)


#: Seconds that a client is under way up and down, of its number and its two rates; all but radio included.
Seconds = Callable[[int, float, float], tuple[float, float]]


def lateness(radio: Radio, allocation: Allocation, seconds: Seconds) -> float:
    """The slowest client's seconds up, and the slowest one's down."""
    times = []
    for client in range(radio.clients):
        own = allocation.channels(client)
        up = radio.up_rate(client, own, allocation.powers[client])
        times.append(seconds(client, up, radio.down_rate(client, own)))
    return max(up for up, _ in times) + max(down for _, down in times)


def reassigned(radio: Radio, allocation: Allocation, seconds: Seconds) -> Allocation:
    """Subchannels given out anew: each client begins with its best one, the next goes to the slowest."""
    left = set(range(radio.gains.shape[1]))
    owners = [0] * len(left)
    for client in sorted(range(radio.clients), key=lambda client: radio.gains[client].max()):
        _give(radio, client, left, owners)
    while left:
        own = [
            [k for k in range(len(owners)) if k not in left and owners[k] == c] for c in range(radio.clients)
        ]
        times = [
            sum(seconds(c, radio.up_rate(c, own[c], allocation.powers[c]), radio.down_rate(c, own[c])))
            for c in range(radio.clients)
        ]
        _give(radio, int(np.argmax(times)), left, owners)
    return allocation._replace(owners=tuple(owners))


def exchanged(radio: Radio, allocation: Allocation, seconds: Seconds) -> Allocation:
    """The best move of one subchannel to a slowest client, or swap of two with it; or as it was."""

    @cache
    def times(client: int, own: tuple[int, ...]) -> tuple[float, float]:
        up = radio.up_rate(client, own, allocation.powers[client])
        return seconds(client, up, radio.down_rate(client, own))

    def taken(owners: list[int]) -> float:
        own = [tuple(k for k, owner in enumerate(owners) if owner == c) for c in range(radio.clients)]
        ups, downs = zip(*(times(client, each) for client, each in enumerate(own)), strict=True)
        return float(max(ups) + max(downs))

    owners = list(allocation.owners)
    now = [times(client, tuple(allocation.channels(client))) for client in range(radio.clients)]
    slow = {max(range(radio.clients), key=lambda client: now[client][way]) for way in (0, 1)}
    best, least = owners, taken(owners)
    for client in slow:
        for channel in (k for k, owner in enumerate(owners) if owner != client):
            for other in (None, *allocation.channels(client)):
                moved = owners.copy()
                moved[channel] = client
                if other is not None:
                    moved[other] = owners[channel]
                if len({*moved}) == radio.clients and taken(moved) < least * (1 - 1e-12):
                    best, least = moved, taken(moved)
    return allocation._replace(owners=tuple(best))


def powered(radio: Radio, allocation: Allocation, seconds: Seconds) -> Allocation:
    """Powers by which the slowest client is up soonest, within what each and what all may send with.

    The time that all reach is found by halving; who needs less power for it gets no more.
    """
    own = [allocation.channels(client) for client in range(radio.clients)]

    def up_s(client: int, power: float) -> float:
        return seconds(client, radio.up_rate(client, own[client], power), 1.0)[0]

    def needed(client: int, by_s: float) -> float:
        low, high = 0.0, radio.client_w
        if up_s(client, high) > by_s:
            return np.inf
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if up_s(client, middle) <= by_s else (middle, high)
        return high

    low, high = 0.0, max(up_s(client, allocation.powers[client]) for client in range(radio.clients))
    powers = allocation.powers
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        tried = [needed(client, middle) for client in range(radio.clients)]
        if sum(tried) <= radio.total_w:
            high, powers = middle, tuple(tried)
        else:
            low = middle
    return allocation._replace(powers=powers)


def _give(radio: Radio, client: int, left: set[int], owners: list[int]) -> None:
    """The best subchannel that is left goes to this client."""
    best = max(left, key=lambda channel: radio.gains[client, channel])
    left.remove(best)
    owners[best] = client
