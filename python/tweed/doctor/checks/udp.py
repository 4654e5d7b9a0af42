"""UDP buffers, for the transport that tolerates loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tweed.doctor.finding import Finding, Level
from tweed.doctor.system import number

_WANTED_BYTES = 8 * 2**20  # 1 Gbit/s for 67 ms


@dataclass(frozen=True, slots=True)
class Facts:
    """Largest buffers in bytes that a socket may ask for; None where the system does not tell."""

    rmem_max: int | None
    wmem_max: int | None


def gather() -> Facts:
    """Reads the system's settings."""
    return Facts(number("/proc/sys/net/core/rmem_max"), number("/proc/sys/net/core/wmem_max"))


def judge(facts: Facts) -> Iterator[Finding]:
    """Buffers that are too small for a fast link with a long way."""
    seen = {"rmem_max": facts.rmem_max, "wmem_max": facts.wmem_max}
    small = {name: value for name, value in seen.items() if value is not None and value < _WANTED_BYTES}
    if None in seen.values():
        what = "the system does not show net.core.rmem_max here (a namespace of its own)"
        yield Finding(Level.OK, f"{what}; look on the host itself")
    elif small:
        sizes = ", ".join(f"net.core.{name} is {value / 2**20:.1f} MiB" for name, value in small.items())
        what = f'{sizes}; transport "ltp" asks for {_WANTED_BYTES // 2**20} MiB (TCP does not need it)'
        words = " ".join(f"net.core.{name}={_WANTED_BYTES}" for name in small)
        yield Finding(Level.NOTE, what, f"sudo sysctl -w {words}")
    else:
        yield Finding(Level.OK, f"sockets may ask for {_WANTED_BYTES // 2**20} MiB and more")
