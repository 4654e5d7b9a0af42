"""Network interfaces: which one other hosts reach, and whether tweed and Gloo are told."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tweed.doctor.finding import Finding, Level
from tweed.doctor.system import environment, read

#: First letters of interfaces that containers, bridges and virtual machines make for themselves.
_OWN = ("docker", "br-", "veth", "virbr", "cni", "flannel", "cali", "podman", "lxc", "ifb", "dummy")
_USUAL_MTU = 1500


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface with an IPv4 address; `network` is the address's, like "192.0.2.0/24"."""

    name: str
    address: str
    network: str
    mtu: int
    up: bool = True
    virtual: bool = False

    @property
    def loopback(self) -> bool:
        """Leads nowhere but here."""
        return ipaddress.ip_address(self.address).is_loopback


@dataclass(frozen=True, slots=True)
class Facts:
    """What was seen; `wanted` holds TWEED_HOST and GLOO_SOCKET_IFNAME where they are set."""

    interfaces: tuple[Interface, ...]
    default: str | None
    wanted: dict[str, str]
    names: tuple[str, ...] = ()


def gather() -> Facts:
    """Looks at this host's interfaces."""
    wanted = environment("TWEED_HOST", "GLOO_SOCKET_IFNAME")
    return Facts(seen(), default_route(read("/proc/net/route") or ""), wanted, tuple(psutil.net_if_stats()))


def seen() -> tuple[Interface, ...]:
    """All interfaces with an IPv4 address."""
    stats = psutil.net_if_stats()
    return tuple(
        _interface(name, str(entry.address), entry.netmask, stats[name].mtu, stats[name].isup)
        for name, entries in psutil.net_if_addrs().items()
        for entry in entries
        if entry.family == socket.AF_INET and name in stats
    )


def _interface(name: str, address: str, mask: str | None, mtu: int, up: bool) -> Interface:
    network = str(ipaddress.ip_network(f"{address}/{mask or 32}", strict=False))
    virtual = name.startswith(_OWN) or Path(f"/sys/class/net/{name}/bridge").exists()
    return Interface(name, address, network, mtu, up, virtual)


def default_route(table: str) -> str | None:
    """The interface of the default route, from the text of /proc/net/route."""
    rows = [line.split() for line in table.splitlines()[1:]]
    ways = [row for row in rows if len(row) > 6 and row[1] == "00000000" and int(row[3], 16) & 1]
    return min(ways, key=lambda row: int(row[6]))[0] if ways else None


def candidates(interfaces: Sequence[Interface], default: str | None) -> list[Interface]:
    """The interfaces that other hosts may reach, the likeliest first."""
    useful = [one for one in interfaces if one.up and not one.loopback]
    return sorted(useful, key=lambda one: (one.name != default, one.virtual, one.name))


def judge(facts: Facts) -> Iterator[Finding]:
    """Says what to set, and what is set wrongly."""
    found = candidates(facts.interfaces, facts.default)
    if not found:
        yield Finding(
            Level.NOTE,
            "no network but loopback: ranks on this host can train, others cannot join",
            "for several hosts connect a network; `ip -brief address` shows what there is",
        )
        return
    if "TWEED_HOST" in facts.wanted:
        yield _host(facts.wanted["TWEED_HOST"], facts, found[0])
    else:
        yield Finding(
            Level.OK,
            f"for several hosts take {_words(found[0])}; without TWEED_HOST tweed listens on loopback only",
            _settings(found[0]),
        )
    if "GLOO_SOCKET_IFNAME" in facts.wanted:
        yield from _gloo(facts.wanted["GLOO_SOCKET_IFNAME"], facts, found[0])
    yield from _choice(facts, found)
    yield from _mtu(found)


def _words(one: Interface) -> str:
    kind = ", made by a bridge or container engine" if one.virtual else ""
    return f"{one.name} ({one.address}, MTU {one.mtu}{kind})"


def _settings(one: Interface) -> str:
    return f"export TWEED_HOST={one.address} GLOO_SOCKET_IFNAME={one.name}"


def _host(host: str, facts: Facts, best: Interface) -> Finding:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        what = f"TWEED_HOST={host} is no IP address; names are not looked up"
        return Finding(Level.ERROR, what, f"export TWEED_HOST={best.address}")
    mine = next((one for one in facts.interfaces if one.address == host), None)
    if address.is_loopback:
        what = f"TWEED_HOST={host} is loopback: ranks on other hosts cannot reach this one"
        return Finding(Level.NOTE, what, f"for several hosts: export TWEED_HOST={best.address}")
    if mine is None and address.version == 4:
        what = f"TWEED_HOST={host} is no address of this host"
        return Finding(Level.ERROR, what, f"export TWEED_HOST={best.address}  # {_words(best)}")
    if mine is not None and not mine.up:
        what = f"TWEED_HOST={host} is on {mine.name}, which is down"
        return Finding(Level.ERROR, what, f"sudo ip link set {mine.name} up")
    where = f" on {mine.name}" if mine else ""
    return Finding(Level.OK, f"tweed listens on {host}{where}")


def _gloo(names: str, facts: Facts, best: Interface) -> Iterator[Finding]:
    known = {*facts.names, *(one.name for one in facts.interfaces)}
    for name in names.split(","):
        if name not in known:
            what = f"GLOO_SOCKET_IFNAME={names}: there is no interface {name}"
            yield Finding(Level.ERROR, what, f"export GLOO_SOCKET_IFNAME={best.name}")
        elif name == "lo":
            what = "GLOO_SOCKET_IFNAME=lo: Gloo reaches only ranks of this host"
            yield Finding(Level.NOTE, what, f"for several hosts: export GLOO_SOCKET_IFNAME={best.name}")


def _choice(facts: Facts, found: Sequence[Interface]) -> Iterator[Finding]:
    if len(found) < 2 or "TWEED_HOST" in facts.wanted:
        return
    yield Finding(
        Level.NOTE,
        f"several interfaces to choose from: {', '.join(map(_words, found))}",
        f"{_settings(found[0])}  # or those of the network that the other hosts are in",
    )


def _mtu(found: Sequence[Interface]) -> Iterator[Finding]:
    small = [one for one in found if one.mtu < _USUAL_MTU and not one.virtual]
    for one in small:
        yield Finding(
            Level.NOTE,
            f"MTU of {one.name} is {one.mtu}, below {_USUAL_MTU}: a tunnel or a cloud network. If large "
            "messages hang where small ones pass, packets that are too long are dropped on the way",
            f"try the way to another host: ping -M do -s {one.mtu - 28} OTHER_HOST",
        )
