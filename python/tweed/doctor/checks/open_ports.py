"""Ports that runs of this user hold open on this host: whose, what for, and who can call there.

Threads that listen have a name such as "engine:29600", which the kernel shows; that of torch's store is
torch's own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from tweed.doctor.checks import ports
from tweed.doctor.finding import Finding, Level
from tweed.doctor.system import loopback, read

_ANYWHERE = ("0.0.0.0", "::")
_NAMED = re.compile(r"(engine|hub|members|witness|objects|metrics):(\d+)")
_TORCH = "pt_tcpstore"  # the begin of the name of its store's thread
_WORDS = {
    "engine": "the engine's, for ranks on other links than shared memory",
    "hub": "a hub's, or of a member that adds up for it",
    "members": "for members of an elastic run",
    "witness": "a witness's",
    "objects": "for objects of tweed.ray",
    "metrics": "for Prometheus",
}


@dataclass(frozen=True, slots=True)
class Port:
    """One that is open: "tcp" or "udp", where, of which process, and what that is, in words."""

    kind: str
    address: str
    number: int
    pid: int
    program: str
    purpose: str


def gather() -> tuple[Port, ...]:
    """Looks at the sockets that listen, and at the threads of their processes."""
    found = []
    threads: dict[int, list[str]] = {}
    datagrams = [one for one in psutil.net_connections("udp") if one.laddr and not one.raddr]
    for kind, one in [*(("tcp", one) for one in ports.listeners()), *(("udp", one) for one in datagrams)]:
        if one.pid is None:
            continue
        if one.pid not in threads:
            threads[one.pid] = _threads(one.pid)
        if purpose := purpose_of(kind, one.laddr.port, threads[one.pid]):
            program = read(f"/proc/{one.pid}/comm") or "a process"
            found.append(Port(kind, one.laddr.ip, one.laddr.port, one.pid, program, purpose))
    return tuple(sorted(found, key=lambda port: (port.pid, port.number, port.address)))


def _threads(pid: int) -> list[str]:
    """The names of a process's threads; none if it is another user's, or has ended."""
    folder = Path(f"/proc/{pid}")
    try:
        if folder.stat().st_uid != os.geteuid():
            return []
        return [read(f"{task}/comm") or "" for task in (folder / "task").iterdir()]
    except OSError:
        return []


def purpose_of(kind: str, port: int, threads: Iterable[str]) -> str:
    """What a port of a process with such threads is for; empty if that process is no part of a run. Pure."""
    threads = list(threads)
    named = {int(match[2]): match[1] for name in threads if (match := _NAMED.fullmatch(name))}
    if kind == "udp":
        return "for packets of the loss-tolerant transport, or the program's own" if named else ""
    if port in named:
        return _WORDS[named[port]]
    if any(name.startswith(_TORCH) for name in threads):
        return "torch's own: its store, which has no lock"
    return "the program's own" if named else ""


def judge(facts: tuple[Port, ...]) -> Iterator[Finding]:
    """A warning for each port that is open to whoever reaches this host."""
    for port in facts:
        place = f"[{port.address}]" if ":" in port.address else port.address
        what = f"{port.kind} {place}:{port.number} is open: {port.purpose} ({port.program}, pid {port.pid})"
        if port.address in _ANYWHERE:
            fix = (
                "if no other host takes part: sudo iptables -I INPUT ! -i lo -p "
                f"{port.kind} --dport {port.number} -j DROP, and by ip6tables; else let only those in"
            )
            yield Finding(Level.WARNING, f"{what}, on all interfaces", fix)
        elif loopback(port.address.removeprefix("::ffff:")):
            yield Finding(Level.OK, f"{what}, on loopback")
        else:
            yield Finding(Level.NOTE, f"{what}, for whoever reaches that address", "docs/security.md")
    if not facts:
        yield Finding(Level.OK, "no run of this user holds a port open")
