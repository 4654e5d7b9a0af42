"""Who gets which subchannel, at which power, where clients share one radio band and all wait for the last.

    found = allocate(radio, demands)        demands: one per cut of the model, or one alone

A round takes the longest upload, then what is fixed and what is broadcast, then the longest download. Three
blocks are improved in turns, each with the others as they are: subchannels (to the straggler first), power
(water-filling: the least power for a rate), and which demand. A change that takes longer is not made. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tweed.errors import UsageError

Floats = NDArray[np.float64]
#: By subchannel, which client has it.
Owners = NDArray[np.int64]
#: Rounds of the blocks at most, and steps of a search by halves.
_MOST_ROUNDS, _HALVINGS = 20, 30


@dataclass(frozen=True, slots=True)
class Radio:
    """A band of subchannels between clients and one server.

    Args:
      gains: `[clients, subchannels]`, the share of a power that arrives, the same both ways.
      bandwidth_hz: of a subchannel.
      noise_w: that a receiver has on a subchannel.
      client_w: the most power of one client, over its subchannels.
      total_w: that of all clients.
      server_w: of the server, on each subchannel.

    Raises: UsageError for fewer subchannels than clients, and gains or powers that are not above 0.

    Example:
      >>> Radio(np.ones((1, 2)), 1e6, 0.5, 1.0, 1.0, 1.0).up_rates(np.array([0, 0]), np.array([0.5, 0.5]))
      array([2000000.])
    """

    gains: Floats
    bandwidth_hz: float
    noise_w: float
    client_w: float
    total_w: float
    server_w: float

    def __post_init__(self) -> None:
        positive = (self.bandwidth_hz, self.noise_w, self.client_w, self.total_w, self.server_w)
        if self.gains.ndim != 2 or self.gains.shape[0] > self.gains.shape[1] or self.gains.shape[0] < 1:
            raise UsageError(f"gains of the shape {self.gains.shape}: each client needs a subchannel or more")
        if not (self.gains > 0).all() or not min(positive) > 0:
            raise UsageError("gains, bandwidth, noise and powers of a radio are to be above 0")

    @property
    def clients(self) -> int:
        """How many there are."""
        return int(self.gains.shape[0])

    @property
    def subchannels(self) -> int:
        """How many there are."""
        return int(self.gains.shape[1])

    def up_rates(self, owners: Owners, power_w: Floats) -> Floats:
        """Bits per second that each client sends, `[clients]`: Shannon's bound, over its subchannels."""
        return self._sums(owners, power_w)

    def down_rates(self, owners: Owners) -> Floats:
        """Bits per second that the server sends to each client."""
        return self._sums(owners, np.full(self.subchannels, self.server_w))

    def broadcast_rate(self) -> float:
        """Bits per second to all clients at once, over all subchannels: as fast as the worst one hears."""
        rates = self.bandwidth_hz * np.log2(1 + self.server_w * self.gains / self.noise_w)
        return float(rates.sum(1).min())

    def equal_power(self, owners: Owners) -> Floats:
        """Gives all subchannels the same power, as far as each client's limit goes."""
        counts = np.bincount(owners, minlength=self.clients)
        found: Floats = np.minimum(self.client_w / counts[owners], self.total_w / self.subchannels)
        return found

    def _sums(self, owners: Owners, power_w: Floats) -> Floats:
        gains = self.gains[owners, np.arange(self.subchannels)]
        rates = self.bandwidth_hz * np.log2(1 + power_w * gains / self.noise_w)
        return np.asarray(np.bincount(owners, rates, self.clients), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a round has to compute and to send, all `[clients]` or one value.

    Attributes:
      before_s, up_bits: of each client, seconds before it sends, and what it sends.
      fixed_s: at the server, between.
      broadcast_bits: from the server to all at once.
      down_bits, after_s: of each client, what it is sent, and seconds behind that.
    """

    before_s: Floats
    up_bits: Floats
    fixed_s: float
    broadcast_bits: float
    down_bits: Floats
    after_s: Floats

    def seconds(self, radio: Radio, owners: Owners, power_w: Floats) -> float:
        """How long the round takes."""
        up = self.before_s + self.up_bits / radio.up_rates(owners, power_w)
        broadcast = self.broadcast_bits / radio.broadcast_rate()
        return float(up.max() + self.fixed_s + broadcast + self._down_s(radio, owners).max())

    def straggler(self, radio: Radio, owners: Owners, power_w: Floats) -> Iterator[int]:
        """The client that is waited for upwards, and downwards."""
        yield int((self.before_s + self.up_bits / radio.up_rates(owners, power_w)).argmax())
        yield int(self._down_s(radio, owners).argmax())

    def _down_s(self, radio: Radio, owners: Owners) -> Floats:
        found: Floats = self.down_bits / radio.down_rates(owners) + self.after_s
        return found


@dataclass(frozen=True, slots=True)
class Allocation:
    """What `allocate` has found.

    Attributes:
      choice: which demand.
      owners, power_w: `[subchannels]`, which client has it, and its power upwards.
      seconds: of a round.
      history: the seconds after each block; none is longer than the one before.
    """

    choice: int
    owners: Owners
    power_w: Floats
    seconds: float
    history: tuple[float, ...]


def allocate(radio: Radio, demands: Sequence[Demand]) -> Allocation:
    """Subchannels, power and the best of the demands, by block coordinate descent.

    Args:
      demands: of which one is chosen, as one for each cut of a model; one at least.

    Returns: the best of a point for each demand to begin with, at which no block alone gets better by
      the steps that are tried.
    Cost: a second for 5 clients, 20 subchannels and 10 demands.
    Source: Lin et al., arXiv 2303.15991, section V.

    Example:
      >>> radio = Radio(np.array([[1.0, 1.0, 1.0], [0.1, 0.1, 0.1]]), 1e6, 0.1, 1.0, 2.0, 1.0)
      >>> zero, one = np.zeros(2), np.ones(2)
      >>> found = allocate(radio, [Demand(zero, 1e6 * one, 0.0, 0.0, 1e6 * one, zero)])
      >>> np.bincount(found.owners).tolist()  # the one that hears less gets more
      [1, 2]
    """
    found = [_descended(radio, demands, start) for start in _starts(radio, demands)]
    return min(found, key=lambda one: one.seconds)


_State = tuple[int, Owners, Floats]


def _starts(radio: Radio, demands: Sequence[Demand]) -> Iterator[_State]:
    """Each demand, with subchannels as they are dealt to stragglers, at equal power."""
    if not demands:
        raise UsageError("allocate needs one demand at least")
    for choice, demand in enumerate(demands):
        owners = greedy(radio, demand)
        yield choice, owners, radio.equal_power(owners)


def _descended(radio: Radio, demands: Sequence[Demand], start: _State) -> Allocation:
    """Improves the three blocks in turns until none gets better."""
    choice, owners, power_w = start
    seconds = demands[choice].seconds(radio, owners, power_w)
    history = [seconds]
    for _ in range(_MOST_ROUNDS):
        before = seconds
        for block in (_owners_block, _power_block, _choice_block):
            now = block(radio, demands, choice, owners, power_w)
            if (took := demands[now[0]].seconds(radio, now[1], now[2])) < seconds:
                (choice, owners, power_w), seconds = now, took
            history.append(seconds)
        if seconds > before * (1 - 1e-6):
            break
    return Allocation(choice, owners, power_w, seconds, tuple(history))


def greedy(radio: Radio, demand: Demand) -> Owners:
    """Deals each client a subchannel, those that hear least first; then each next one, the best that is left
    for it, to whoever takes longest."""
    rates = radio.bandwidth_hz * np.log2(1 + radio.total_w / radio.subchannels * radio.gains / radio.noise_w)
    owners, free = np.full(radio.subchannels, -1), set(range(radio.subchannels))
    sums = np.zeros(radio.clients)
    order = [int(one) for one in radio.gains.mean(1).argsort()]
    while free:
        if order:
            client = order.pop(0)
        else:
            took = demand.before_s + (demand.up_bits + demand.down_bits) / sums + demand.after_s
            client = int(took.argmax())
        best = max(free, key=lambda subchannel: rates[client, subchannel])
        owners[best] = client
        sums[client] += rates[client, best]
        free.discard(best)
    return owners


def least_power(radio: Radio, owners: Owners, rates: Floats) -> Floats:
    """The least power by which clients send at these rates over their subchannels: water-filling.

    Args:
      rates: `[clients]`, bits per second, above 0.

    Returns: `[subchannels]`, W.
    """
    floors = np.where(
        owners == np.arange(radio.clients)[:, None], np.log2(radio.noise_w / radio.gains), np.inf
    )
    ordered = np.sort(floors, axis=1)
    levels = (rates[:, None] / radio.bandwidth_hz + ordered.cumsum(1)) / np.arange(1, radio.subchannels + 1)
    last = radio.subchannels - 1 - (levels > ordered)[:, ::-1].argmax(1)
    mine = np.arange(radio.subchannels)
    level = levels[np.arange(radio.clients), last][owners]
    found: Floats = np.maximum(0.0, 2.0**level - 2.0 ** floors[owners, mine])
    return found


def fastest_power(radio: Radio, demand: Demand, owners: Owners) -> Floats:
    """The power on each subchannel at which the last upload ends soonest, within all limits."""
    best = radio.equal_power(owners)
    most = float((demand.before_s + demand.up_bits / radio.up_rates(owners, best)).max())
    least = float(demand.before_s.max())
    for _ in range(_HALVINGS):
        middle = (least + most) / 2
        if not least < middle < most:
            break
        with np.errstate(over="ignore"):
            power_w = least_power(radio, owners, demand.up_bits / (middle - demand.before_s))
        used = np.bincount(owners, power_w, radio.clients)
        if used.max() <= radio.client_w and used.sum() <= radio.total_w:
            best, most = power_w, middle
        else:
            least = middle
    return best


def _owners_block(
    radio: Radio, demands: Sequence[Demand], choice: int, owners: Owners, power_w: Floats
) -> _State:
    """Gives stragglers subchannels of others, or changes theirs, as long as a round gets shorter."""
    demand, current = demands[choice], demands[choice].seconds(radio, owners, power_w)
    for _ in range(radio.subchannels):
        tried = [
            (demand.seconds(radio, one, radio.equal_power(one)), place, one)
            for place, one in enumerate(_moves(radio, demand, owners, power_w))
        ]
        found = owners
        for _, _, one in sorted(tried, key=lambda one: one[:2])[:3]:
            power = fastest_power(radio, demand, one)
            if (seconds := demand.seconds(radio, one, power)) < current:
                found, power_w, current = one, power, seconds
        if found is owners:
            break
        owners = found
    return choice, owners, power_w


def _moves(radio: Radio, demand: Demand, owners: Owners, power_w: Floats) -> Iterator[Owners]:
    counts = np.bincount(owners, minlength=radio.clients)
    for client in {*demand.straggler(radio, owners, power_w)}:
        for subchannel in np.flatnonzero(owners != client):
            if counts[owners[subchannel]] > 1:
                given = owners.copy()
                given[subchannel] = client
                yield given
            for own in np.flatnonzero(owners == client):
                changed = owners.copy()
                changed[[subchannel, own]] = owners[[own, subchannel]]
                yield changed


def _power_block(
    radio: Radio, demands: Sequence[Demand], choice: int, owners: Owners, power_w: Floats
) -> _State:
    return choice, owners, fastest_power(radio, demands[choice], owners)


def _choice_block(
    radio: Radio, demands: Sequence[Demand], choice: int, owners: Owners, power_w: Floats
) -> _State:
    """The demand that is best with these subchannels; its power is that which suits it."""
    powers = [fastest_power(radio, demand, owners) for demand in demands]
    took = [demand.seconds(radio, owners, power) for demand, power in zip(demands, powers, strict=True)]
    best = int(np.argmin(took))
    return best, owners, powers[best]
