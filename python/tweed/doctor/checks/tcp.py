"""TCP: how much may be under way on a long link, and the congestion control."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from tweed.doctor.finding import Finding, Level
from tweed.doctor.system import number, read

_STREAMS = 4  # between two ranks, unless TWEED_STREAMS says otherwise
_DELAY_S = 0.1  # round trip between continents
_WANTED_BITS = 1e9


@dataclass(frozen=True, slots=True)
class Facts:
    """Congestion controls, and the largest windows in bytes; None or empty where the system does not tell."""

    current: str
    available: tuple[str, ...]
    allowed: tuple[str, ...]
    rmem_max: int | None
    wmem_max: int | None
    wanted: str | None = None
    root: bool = False


def gather() -> Facts:
    """Reads the system's settings."""
    folder = "/proc/sys/net/ipv4"
    return Facts(
        current=read(f"{folder}/tcp_congestion_control") or "",
        available=tuple((read(f"{folder}/tcp_available_congestion_control") or "").split()),
        allowed=tuple((read(f"{folder}/tcp_allowed_congestion_control") or "").split()),
        rmem_max=number(f"{folder}/tcp_rmem"),
        wmem_max=number(f"{folder}/tcp_wmem"),
        wanted=os.environ.get("TWEED_CONGESTION") or None,
        root=os.geteuid() == 0,
    )


def judge(facts: Facts) -> Iterator[Finding]:
    """Windows, then congestion control."""
    yield from _windows(facts)
    yield from _wanted(facts) if facts.wanted else _current(facts)


def _windows(facts: Facts) -> Iterator[Finding]:
    windows = [value for value in (facts.rmem_max, facts.wmem_max) if value]
    if not windows:
        return
    bits = _STREAMS * min(windows) * 8 / _DELAY_S
    speed = (
        f"{_STREAMS} streams carry at most {bits / 1e6:,.0f} Mbit/s over a way of {_DELAY_S * 1000:.0f} ms"
    )
    if bits >= _WANTED_BITS:
        yield Finding(Level.OK, speed)
        return
    most = round(_WANTED_BITS * _DELAY_S / 8 / _STREAMS)
    size = max(2 ** (most - 1).bit_length(), max(windows))
    fix = f'sudo sysctl -w net.ipv4.tcp_rmem="4096 131072 {size}" net.ipv4.tcp_wmem="4096 16384 {size}"'
    what = f"{speed}: the largest window is {min(windows) / 2**20:.2f} MiB"
    yield Finding(Level.NOTE, what, fix)


def _wanted(facts: Facts) -> Iterator[Finding]:
    name, may = facts.wanted, facts.available if facts.root else facts.allowed
    if name in may:
        yield Finding(Level.OK, f"congestion control {name}, as TWEED_CONGESTION says")
    elif name in facts.available:
        every = " ".join(facts.available)
        what = f"TWEED_CONGESTION={name} is there, but only root may choose it"
        yield Finding(Level.ERROR, what, f'sudo sysctl -w net.ipv4.tcp_allowed_congestion_control="{every}"')
    elif facts.available:
        what = f"TWEED_CONGESTION={name}: not among the kernel's ({', '.join(facts.available)})"
        yield Finding(Level.ERROR, what, f"sudo modprobe tcp_{name}; or unset TWEED_CONGESTION")


def _current(facts: Facts) -> Iterator[Finding]:
    others = [name for name in facts.available if name != facts.current]
    if facts.current == "bbr" and "cubic" in others:
        what = "congestion control is bbr: good where packets are lost, slow on links that are never full"
        yield Finding(Level.NOTE, what, "within one building try: export TWEED_CONGESTION=cubic")
    elif facts.current:
        hint = "; where packets are lost try TWEED_CONGESTION=bbr" if "bbr" in others else ""
        yield Finding(Level.OK, f"congestion control {facts.current}{hint}")
