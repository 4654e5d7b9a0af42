"""The host's own name: Gloo and torchrun look it up, and offer what they find to other hosts."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from tweed.doctor.checks import interfaces
from tweed.doctor.finding import Finding, Level
from tweed.doctor.system import loopback, read, resolve


@dataclass(frozen=True, slots=True)
class Facts:
    """`addresses` of `name`, or the `error`; `best`: the interface to offer; `gloo`: GLOO_SOCKET_IFNAME."""

    name: str
    addresses: tuple[str, ...] = ()
    error: str | None = None
    best: interfaces.Interface | None = None
    gloo: str | None = None


def gather() -> Facts:
    """Looks up this host's name."""
    name = socket.gethostname()
    found = interfaces.candidates(interfaces.seen(), interfaces.default_route(read("/proc/net/route") or ""))
    best, gloo = found[0] if found else None, os.environ.get("GLOO_SOCKET_IFNAME")
    try:
        return Facts(name, resolve(name), None, best, gloo)
    except OSError as error:
        return Facts(name, (), str(error), best, gloo)


def judge(facts: Facts) -> Iterator[Finding]:
    """A name that is unknown or means loopback."""
    if facts.error is not None:
        what = f"the name of this host, {facts.name}, is not found ({facts.error}); Gloo then uses loopback"
        yield Finding(_level(facts), what, _fix(facts, ""))
    elif all(map(loopback, facts.addresses)):
        what = (
            f"the name of this host, {facts.name}, means loopback ({', '.join(facts.addresses)}): "
            "Gloo and torchrun offer that to other hosts, which then wait until a timeout"
        )
        yield Finding(_level(facts), what, _fix(facts, f", and take {facts.name} off its line 127.*"))
    else:
        yield Finding(Level.OK, f"{facts.name} is {', '.join(facts.addresses)}")


def _level(facts: Facts) -> Level:
    return Level.NOTE if facts.gloo or facts.best is None else Level.WARNING


def _fix(facts: Facts, then: str) -> str:
    if facts.best is None:
        return "nothing to do for ranks of this host"
    name, address = facts.best.name, facts.best.address
    return (
        f"export GLOO_SOCKET_IFNAME={name}, and start torchrun with --local-addr {address}; or for good: "
        f"echo '{address} {facts.name}' | sudo tee -a /etc/hosts{then}"
    )
