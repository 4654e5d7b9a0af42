"""How long a round of split learning takes over radio links, and the cut and allocation that make it short.

    round = slowest client up (lower forward, activations) + server forward and backward
            + broadcast of the common gradients + slowest client down (own gradients, lower backward)

Computing counts operations over a processor's rate; the broadcast goes at the rate of its worst client. Pure.

Source: Lin et al. 2024, section IV; block coordinate descent: section V.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from tweed.exchange.allocation import (
    Allocation,
    Radio,
    exchanged,
    lateness,
    powered,
    reassigned,
    spread_evenly,
)
from tweed.workloads.split.rows import slots


@dataclass(frozen=True, slots=True)
class Profile:
    """A model by the layers after which it may be cut.

    Attributes:
      lower_flops: `[cuts]`, operations per sample of the lower layers' forward pass; backward takes twice.
      total_flops: of all layers.
      bits: `[cuts]`, of a sample's activations, and of its gradients.
      lower_bits: `[cuts]`, of the lower layers' weights.
    """

    lower_flops: tuple[float, ...]
    total_flops: float
    bits: tuple[float, ...]
    lower_bits: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Setting:
    """Who trains what, over which radio.

    Attributes:
      client_flops: `[clients]`, operations per second of each.
      server_flops: of the server.
      batch: samples of each client in a round.
      phi: the share of rows whose gradients are aggregated.
    """

    profile: Profile
    radio: Radio
    client_flops: tuple[float, ...]
    server_flops: float
    batch: int
    phi: float = 0.0

    @property
    def common(self) -> int:
        """Rows that are aggregated."""
        return slots(self.phi, [self.batch])

    def seconds(self, cut: int, client: int, up_rate: float, down_rate: float) -> tuple[float, float]:
        """A client's seconds up and down, at these rates in bits per second."""
        flops, bits = self.profile.lower_flops[cut], self.profile.bits[cut]
        forward = self.batch * flops / self.client_flops[client]
        up = forward + self.batch * bits / max(up_rate, 1e-9)
        down = (self.batch - self.common) * bits / max(down_rate, 1e-9) + 2 * forward
        return up, down

    def server_s(self, cut: int) -> float:
        """Seconds of the server's forward pass over all rows, and of its backward pass over the reduced."""
        clients, upper = len(self.client_flops), self.profile.total_flops - self.profile.lower_flops[cut]
        rows = self.common + clients * (self.batch - self.common)
        return (clients * self.batch + 2 * rows) * upper / self.server_flops

    def broadcast_s(self, cut: int, allocation: Allocation) -> float:
        """Seconds of the common gradients, over all subchannels at the rate of the worst client."""
        every = range(len(allocation.owners))
        worst = min(self.radio.down_rate(client, every) for client in range(self.radio.clients))
        return self.common * self.profile.bits[cut] / worst

    def round_s(self, cut: int, allocation: Allocation) -> float:
        """Seconds of a round of parallel split learning, with rows aggregated."""
        waited = lateness(self.radio, allocation, partial(self.seconds, cut))
        return waited + self.server_s(cut) + self.broadcast_s(cut, allocation)

    def federated_s(self, cut: int, allocation: Allocation) -> float:
        """Seconds of a round of federated split learning: the lower weights go up and come down, too."""
        bits, extra = self.profile.lower_bits[cut], []
        for client in range(self.radio.clients):
            own = allocation.channels(client)
            up = self.radio.up_rate(client, own, allocation.powers[client])
            extra.append((bits / up, bits / self.radio.down_rate(client, own)))
        return self.round_s(cut, allocation) + max(up for up, _ in extra) + max(down for _, down in extra)

    def sequential_s(self, cut: int) -> float:
        """Seconds in which each client has had its turn, with all subchannels, and handed its weights on."""
        every, total = range(self.radio.gains.shape[1]), 0.0
        for client in range(self.radio.clients):
            up_rate = self.radio.up_rate(client, every, self.radio.client_w)
            down_rate = self.radio.down_rate(client, every)
            alone = Setting(
                self.profile, self.radio, (self.client_flops[client],), self.server_flops, self.batch
            )
            up, down = alone.seconds(cut, 0, up_rate, down_rate)
            handed = self.profile.lower_bits[cut] * (1 / up_rate + 1 / down_rate)
            total += up + down + alone.server_s(cut) + handed
        return total


class Chosen(NamedTuple):
    """A cut, an allocation, and the seconds of a round after each step of the search: none is longer."""

    cut: int
    allocation: Allocation
    rounds_s: tuple[float, ...]


def descended(setting: Setting, start: Allocation | None = None, most: int = 20) -> Chosen:
    """Block coordinate descent over cut, subchannels and powers, until nothing is shorter.

    Args:
      start: where it begins; None: `spread_evenly`.
      most: rounds of the search.

    Cost: per round of the search, the clients times the square of subchannels in rates.
    """
    cut, allocation = 0, start or spread_evenly(setting.radio)
    found = [setting.round_s(cut, allocation)]
    for _ in range(most):
        before = found[-1]
        cut = min(range(len(setting.profile.bits)), key=lambda cut: setting.round_s(cut, allocation))
        found.append(setting.round_s(cut, allocation))
        for block in (reassigned, exchanged, powered):
            moved = block(setting.radio, allocation, partial(setting.seconds, cut))
            taken = setting.round_s(cut, moved)
            if taken < found[-1]:
                allocation = moved
                found.append(taken)
        if found[-1] > before * (1 - 1e-6):
            break
    return Chosen(cut, allocation, tuple(found))


def drop(seed: int, clients: int, channels: int, radius_m: float = 200.0) -> Radio:
    """Clients at random places of a cell; gains go by distance^-3.5 and Rayleigh fading."""
    random = np.random.default_rng(seed)
    distance = radius_m * np.sqrt(random.uniform(0.01, 1, clients))
    gains = 1e-3 * distance[:, None] ** -3.5 * random.exponential(1.0, (clients, channels))
    return Radio(gains)


def at_random(radio: Radio, seed: int) -> Allocation:
    """Subchannels by lot, one at least for each client, and even powers."""
    random = np.random.default_rng([seed, 1])
    count = radio.gains.shape[1]
    owners: Sequence[int] = [
        *range(radio.clients),
        *random.integers(0, radio.clients, count - radio.clients).tolist(),
    ]
    return Allocation(tuple(random.permutation(owners).tolist()), spread_evenly(radio).powers)
