"""A network as text: a line that is read and written, and words for people. Pure.

A line is a list of `key=value`. A key of one link alone has its rank before it, a key of one direction `up`
or `down`: `rate=100mbit,0.rate=1gbit,0.down.loss=1%`. The name of a profile may stand first; what follows
goes before its values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from tweed.testbed import units
from tweed.testbed.link import Link


class Profile(NamedTuple):
    """A network as text, and why it is so."""

    text: str
    reason: str


#: By name. What stands behind a name in a network's text goes before the profile's own values.
PROFILES = {
    "lan": Profile(
        "rate=1gbit,down.queue=512kb",
        "Gigabit Ethernet through one switch, with some 512 KB of buffer per port. A round trip within this "
        "machine takes 0.05 to 0.1 ms, as over a LAN, so no delay is added.",
    ),
    "incast": Profile(
        "rate=1gbit,down.queue=64kb",
        "The same with the 64 KB per port of the cheap switches on which incast was first described "
        "(Phanishayee et al., FAST 2008: 32 to 256 KB).",
    ),
    "lossy-lan": Profile(
        "rate=1gbit,rtt=1ms,loss=0.1%",
        "A bad cable or an overloaded switch on the way: the middle ones of the losses and round trips that "
        "`tweed reproduce ltp` goes through.",
    ),
    "wan": Profile(
        "rate=100mbit,rtt=40ms,jitter=1ms,loss=0.01%,queue=50ms",
        "Two sites some 3000 km apart: light in fibre takes 5 ms per 1000 km, one way.",
    ),
    "home": Profile(
        "up.rate=20mbit,down.rate=100mbit,rtt=20ms,jitter=3ms,loss=0.1%,burst=3,up.queue=200ms",
        "A cable or VDSL line: slow upwards, with the deep queue of a home router "
        "(bufferbloat: Gettys and Nichols, 2012).",
    ),
    "edge": Profile(
        "up.rate=10mbit,down.rate=40mbit,rtt=60ms,jitter=15ms,loss=1%,burst=5,reorder=0.5%,queue=200ms",
        "A device on a mobile network: uneven, late, with losses that come together.",
    ),
}


class Place(NamedTuple):
    """Whose a value is: of a rank's link or all links (None), in a direction or both (None)."""

    rank: int | None
    direction: str | None


Values = dict[tuple[Place, str], dict[str, Any]]


def parse(line: str) -> dict[str, Any]:
    """`line` as arguments of `Network`."""
    first, comma, rest = line.partition(",")
    if (profile := PROFILES.get(first.strip())) is not None:
        return _arguments(_values(profile.text) | _values(rest)) if comma else parse(profile.text)
    return _arguments(_values(line))


def _values(line: str) -> Values:
    found: Values = {}
    for part in line.split(","):
        place, slot, read = _part(part)
        if (place, slot) in found:
            raise units.unreadable(part, f"{slot} is there twice")
        found[place, slot] = read
    return found


def _part(part: str) -> tuple[Place, str, dict[str, Any]]:
    path, sign, value = (word.strip() for word in part.partition("="))
    *before, key = path.split(".")
    rank = int(before.pop(0)) if before and before[0].isdecimal() else None
    direction = before.pop(0) if before and before[0] in ("up", "down") else None
    if not sign or not value or before or key not in _KEYS:
        raise units.unreadable(part, _KNOWN)
    if key in _ALL_ONLY and (rank, direction) != (None, None):
        raise units.unreadable(part, f"{key} holds for all links")
    return Place(rank, direction), "delay" if key == "rtt" else key, _KEYS[key](value)


def _arguments(values: Values) -> dict[str, Any]:
    ranks = sorted({place.rank for place, _ in values if place.rank is not None})
    hosts = {rank: Link(**_link(values, rank)) for rank in ranks}
    return _link(values, None) | ({"hosts": hosts} if hosts else {})


def _link(values: Values, rank: int | None) -> dict[str, Any]:
    found = _at(values, Place(rank, None))
    for direction in ("up", "down"):
        if own := _at(values, Place(rank, direction)):
            found[direction] = Link(**own)
    return found


def _at(values: Values, place: Place) -> dict[str, Any]:
    found = (read for (where, _), read in values.items() if where == place)
    return {name: value for read in found for name, value in read.items()}


def written(
    network: Link, congestion: str, offload: bool, hosts: dict[int, Link], nat: Collection[int] = ()
) -> str:
    """The line that `parse` reads as such a network."""
    own = [*_written(network, ""), *(part for rank in hosts for part in _written(hosts[rank], f"{rank}."))]
    own += ["offload=yes"] if offload else []
    own += [f"nat={'+'.join(map(str, nat))}"] if nat else []
    return ",".join([*own, f"congestion={congestion}"])


def _written(link: Link, prefix: str) -> Iterator[str]:
    for name, (key, write) in _WRITTEN.items():
        if (value := getattr(link, name)) is not None:
            yield f"{prefix}{key}={write(value)}"
    for direction in ("up", "down"):
        if (own := getattr(link, direction)) is not None:
            yield from _written(own, f"{prefix}{direction}.")


def words(network: Link, hosts: Mapping[int, Link], congestion: str, nat: Collection[int] = ()) -> str:
    """ "100 Mbit/s per worker, 20 ms of delay, 0.1 % of packets lost, cubic"."""
    rate = "not slowed" if network.rate_bits is None else f"{units.spoken_rate(network.rate_bits)} per worker"
    parts = [rate, *_rest(network)]
    if not network.loss:
        parts.append("no loss")
    parts += [f"rank {rank}: {' and '.join(_all(link))}" for rank, link in hosts.items()]
    parts += [f"behind NAT: {' and '.join(map(str, nat))}"] if nat else []
    return ", ".join([*parts, congestion])


def _all(link: Link) -> Iterator[str]:
    if link.rate_bits is not None:
        yield units.spoken_rate(link.rate_bits)
    yield from _rest(link)


def _rest(link: Link) -> Iterator[str]:
    """All of a link but its rate."""
    if link.queue_ms is not None:
        yield f"queues of {units.plain(link.queue_ms)} ms"
    if link.queue_bytes is not None:
        yield f"queues of {units.spoken_size(link.queue_bytes)}"
    if link.delay_ms is not None:
        jitter = f" ± {units.plain(link.jitter_ms)}" if link.jitter_ms else ""
        yield f"{units.plain(link.delay_ms)}{jitter} ms of delay"
    if link.loss is not None:
        bursts = f" in bursts of {units.plain(link.burst)}" if link.burst else ""
        yield f"{units.percent(link.loss)} % of packets lost{bursts}"
    if link.reorder is not None:
        yield f"{units.percent(link.reorder)} % overtaken"
    if link.duplicate is not None:
        yield f"{units.percent(link.duplicate)} % twice"
    for name, one in (("up", link.up), ("down", link.down)):
        if one is not None:
            yield f"{name} {' and '.join(_all(one))}"


def _ms(value: float) -> str:
    return f"{units.plain(value)}ms"


def _chance(value: float) -> str:
    return f"{units.percent(value)}%"


_WRITTEN: dict[str, tuple[str, Callable[[Any], str]]] = {
    "rate_bits": ("rate", units.rate),
    "queue_ms": ("queue", _ms),
    "queue_bytes": ("queue", units.size),
    "delay_ms": ("delay", _ms),
    "jitter_ms": ("jitter", _ms),
    "loss": ("loss", _chance),
    "burst": ("burst", units.plain),
    "reorder": ("reorder", _chance),
    "duplicate": ("duplicate", _chance),
}


def _queue(value: str) -> dict[str, Any]:
    if value.lower().endswith("s"):
        return {"queue_ms": units.read(value, units.TIMES, "queue", "20ms")}
    return {"queue_bytes": round(units.read(value, units.SIZES | units.TIMES, "queue", "64kb"))}


def _time(key: str) -> Callable[[str], dict[str, Any]]:
    return lambda value: {f"{key}_ms": units.read(value, units.TIMES, key, "20ms")}


def _probability(key: str) -> Callable[[str], dict[str, Any]]:
    return lambda value: {key: units.chance(value, key)}


def _offload(value: str) -> dict[str, Any]:
    if value not in ("yes", "no"):
        raise units.unreadable(f"offload={value}", "it is yes or no")
    return {"offload": value == "yes"}


def _nat(value: str) -> dict[str, Any]:
    ranks = value.split("+")
    if not all(rank.isdecimal() for rank in ranks):
        raise units.unreadable(f"nat={value}", "it is ranks with + between, such as nat=2+3")
    return {"nat": tuple(map(int, ranks))}


_KEYS: dict[str, Callable[[str], dict[str, Any]]] = {
    "rate": lambda value: {"rate_bits": units.read(value, units.RATES, "rate", "100mbit")},
    "queue": _queue,
    "delay": _time("delay"),
    "rtt": lambda value: {"delay_ms": units.read(value, units.TIMES, "rtt", "40ms") / 2},  # there and back
    "jitter": _time("jitter"),
    "loss": _probability("loss"),
    "burst": lambda value: {"burst": float(units.number_in(value, value, "burst=4"))},
    "reorder": _probability("reorder"),
    "duplicate": _probability("duplicate"),
    "offload": _offload,
    "nat": _nat,
    "congestion": lambda value: {"congestion": value},
}
_ALL_ONLY = ("offload", "nat", "congestion")
_KNOWN = f"the keys are {', '.join(_KEYS)}, the profiles {', '.join(PROFILES)}"
