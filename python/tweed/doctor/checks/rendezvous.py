"""Where ranks meet: whether MASTER_ADDR leads there, and who else could come. Torch's store has no lock."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tweed.doctor.checks import interfaces, ports
from tweed.doctor.finding import Finding, Level
from tweed.doctor.system import loopback, read, resolve

_ANYWHERE = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Facts:
    """MASTER_ADDR with its addresses, or why it has none; who listens at its port here.

    Attributes:
      mine: MASTER_ADDR is this host.
      several_hosts: torchrun says that not all ranks are here.
      listening: addresses on which somebody listens at the port, on this host.
      refused: why a connection to another host's port failed; None: it did not, or was not tried.
      best: this host's likeliest interface.
      started: torchrun, or something like it, has started this process.
    """

    master: str | None
    port: str = "29500"
    addresses: tuple[str, ...] = ()
    error: str | None = None
    mine: bool = True
    several_hosts: bool = False
    listening: tuple[str, ...] = ()
    refused: str | None = None
    best: interfaces.Interface | None = None
    started: bool = False


def gather() -> Facts:
    """Looks up MASTER_ADDR and tries a connection if that is another host."""
    env, seen = os.environ, interfaces.seen()
    size, here = env.get("WORLD_SIZE"), env.get("LOCAL_WORLD_SIZE")
    port = env.get("MASTER_PORT") or "29500"
    found = interfaces.candidates(seen, interfaces.default_route(read("/proc/net/route") or ""))
    facts = Facts(
        master=env.get("MASTER_ADDR") or None,
        port=port,
        several_hosts=size is not None and here is not None and size != here,
        listening=tuple(sorted({one.laddr.ip for one in ports.listeners() if str(one.laddr.port) == port})),
        best=found[0] if found else None,
        started="RANK" in env,
    )
    return facts if facts.master is None else _looked_up(facts, facts.master, {one.address for one in seen})


def _looked_up(facts: Facts, master: str, own: set[str]) -> Facts:
    try:
        addresses = resolve(master)
    except OSError as error:
        return replace(facts, error=str(error), mine=False)
    mine = any(address in own or loopback(address) for address in addresses)
    refused = None if mine or not facts.port.isdigit() else _refused(master, int(facts.port))
    return replace(facts, addresses=addresses, mine=mine, refused=refused)


def _refused(host: str, port: int) -> str | None:
    try:
        socket.create_connection((host, port), timeout=1.5).close()
    except (OSError, OverflowError) as error:
        return str(error)
    return None


def judge(facts: Facts) -> Iterator[Finding]:
    """A name that leads nowhere or astray; a store that is open to all."""
    if facts.error is not None:
        what = f"MASTER_ADDR={facts.master} is not found: {facts.error}"
        yield Finding(Level.ERROR, what, "take the IP address of rank 0's host: export MASTER_ADDR=ADDRESS")
    elif facts.several_hosts and facts.addresses and all(map(loopback, facts.addresses)):
        own = facts.best.address if facts.best else "ADDRESS"
        what = (
            f"ranks are on several hosts, and MASTER_ADDR={facts.master} is loopback: the others cannot come"
        )
        fix = f"torchrun --master-addr ADDRESS_OF_RANK_0 ... (this host's is {own})"
        yield Finding(Level.ERROR, what, fix)
    elif facts.refused is not None:
        yield _unreachable(facts)
    yield from _open(facts)


def _unreachable(facts: Facts) -> Finding:
    if "refused" in facts.refused.lower() if facts.refused else False:
        what = f"{facts.master} answers, but nobody listens at port {facts.port} yet"
        return Finding(Level.NOTE, what, "normal before rank 0 starts; else check MASTER_PORT there")
    what = f"{facts.master}, port {facts.port}, cannot be reached: {facts.refused}"
    fix = f"check the way: ping {facts.master}; then, on it, open the port: sudo ufw allow {facts.port}/tcp"
    return Finding(Level.ERROR, what, fix)


def _open(facts: Facts) -> Iterator[Finding]:
    everywhere = [address for address in facts.listening if address in _ANYWHERE]
    if everywhere:
        whose = (
            "torch's TCPStore listens" if facts.started else "if torch's TCPStore listens there, it does so"
        )
        what = (
            f"port {facts.port} is open on all interfaces: {whose} without a password, and who reaches it "
            "can read and change what ranks agree on"
        )
        yield Finding(Level.WARNING, what, _close(facts))
    elif facts.master is not None and facts.mine and not facts.listening:
        what = (
            f"once rank 0 runs, torch's TCPStore listens at port {facts.port} on all interfaces, "
            "without a password"
        )
        yield Finding(Level.NOTE, what, _close(facts))
    elif facts.error is None and facts.refused is None:
        yield Finding(Level.OK, "no store of torch's is open to other hosts")


def _close(facts: Facts) -> str:
    net = facts.best.network if facts.best else "NETWORK"
    rules = (
        "add table inet tweed; add chain inet tweed input { type filter hook input priority 0; }; "
        f'add rule inet tweed input iifname != "lo" tcp dport {facts.port} ip saddr != {net} drop; '
        f'add rule inet tweed input iifname != "lo" meta nfproto ipv6 tcp dport {facts.port} drop'
    )
    return (
        "for ranks of one host use `tweed train`, whose store is closed; for several stay in a private "
        f"network, or let only {net} in: sudo nft '{rules}'"
    )
