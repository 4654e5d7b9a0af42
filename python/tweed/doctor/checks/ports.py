"""Ports: whether sockets can be had at all, and whether the one where ranks meet is free."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psutil

from tweed.doctor.finding import Finding, Level
from tweed.doctor.system import read

_TORCHRUN_PORT = 29500
_FEW = 2000


@dataclass(frozen=True, slots=True)
class Facts:
    """Range of ports for outgoing connections; the port where ranks meet, and who listens there.

    `holder`: "python, pid 12", or "" if it belongs to another user. `started`: torchrun has started us, so
    the holder should be torchrun.
    """

    low: int
    high: int
    port: str
    given: bool
    taken: bool
    holder: str = ""
    error: str | None = None
    started: bool = False


def gather() -> Facts:
    """Looks who listens; opens a port on loopback, connects to it, and gives it back."""
    words = (read("/proc/sys/net/ipv4/ip_local_port_range") or "32768 60999").split()
    port = os.environ.get("MASTER_PORT") or str(_TORCHRUN_PORT)
    held = [one for one in listeners() if str(one.laddr.port) == port]
    return Facts(
        low=int(words[0]),
        high=int(words[1]),
        port=port,
        given=bool(os.environ.get("MASTER_PORT")),
        taken=bool(held),
        holder=_holder(held[0].pid) if held else "",
        error=_bind(),
        started="RANK" in os.environ,
    )


def listeners() -> list[Any]:
    """All TCP sockets of this network namespace that listen. `pid` is None for those of other users."""
    return [one for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN]


def _holder(pid: int | None) -> str:
    try:
        return f"{psutil.Process(pid).name()}, pid {pid}" if pid else ""
    except psutil.Error:
        return ""


def _bind() -> str | None:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=1).close()
            return None
    except OSError as error:
        return str(error)


def judge(facts: Facts) -> Iterator[Finding]:
    """Too few ports, none to be had, or the meeting port taken."""
    if facts.error is not None:
        what = f"ranks of this host cannot connect to each other over loopback: {facts.error}"
        yield Finding(Level.ERROR, what, "sudo ip link set lo up; in a container, allow it sockets")
    if facts.high - facts.low < _FEW:
        what = f"only ports {facts.low} to {facts.high} are there for connections"
        fix = 'sudo sysctl -w net.ipv4.ip_local_port_range="32768 60999"'
        yield Finding(Level.WARNING, what, fix)
    if not facts.port.isdigit():
        return  # `environment` says so
    if facts.taken and not facts.started:
        yield _taken(facts)
    elif facts.error is None:
        state = "in use by torchrun" if facts.taken else "free"
        yield Finding(Level.OK, f"port {facts.port}, where torchrun's ranks meet, is {state}")
    if facts.given and facts.low <= int(facts.port) <= facts.high and not facts.started:
        what = (
            f"MASTER_PORT={facts.port} lies among the ports for outgoing connections "
            f"({facts.low} to {facts.high}): any program may hold it by chance when ranks start"
        )
        yield Finding(Level.NOTE, what, f"take one outside: export MASTER_PORT={_TORCHRUN_PORT}")


def _taken(facts: Facts) -> Finding:
    port = int(facts.port)
    name = "MASTER_PORT" if facts.given else "torchrun's usual port,"
    holder = facts.holder or "by a process of another user"
    other = port + 1 if port < 65535 else port - 1
    return Finding(
        Level.WARNING,
        f"{name} {port} is taken ({holder}): a new job that meets there fails, or joins the old one",
        f"end that process (sudo ss -ltnp sport = :{port} names it), or take another port: "
        f"torchrun --master-port {other} ... (without torchrun: export MASTER_PORT={other} on all ranks)",
    )
