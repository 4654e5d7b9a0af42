"""Small looks at the system that several checks share. Impure."""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def read(path: str) -> str | None:
    """Text of a small file without its surrounding blanks; None if it cannot be read."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def number(path: str) -> int | None:
    """The last whole number in a file of /proc; None if there is none."""
    words = (read(path) or "").split()
    return int(words[-1]) if words and words[-1].isdigit() else None


def within(seconds: float, work: Callable[[], T]) -> T:
    """What `work` returns or raises; TimeoutError after `seconds`. Then its thread is left to itself."""
    ends: list[T | BaseException] = []

    def run() -> None:
        try:
            ends.append(work())
        except BaseException as error:  # noqa: BLE001 handed to the caller, whatever it is
            ends.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not ends:
        raise TimeoutError(f"no answer within {seconds:g} s")
    if isinstance(ends[0], BaseException):
        raise ends[0]
    return ends[0]


def resolve(name: str) -> tuple[str, ...]:
    """IP addresses of a host name, in the resolver's order, each once.

    Raises: OSError if there are none, TimeoutError after two seconds.
    """
    found = within(2.0, lambda: socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def loopback(address: str) -> bool:
    """Whether an IP address, with a scope ("fe80::1%eth0") or none, is loopback's; no other text is."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def environment(*names: str) -> dict[str, str]:
    """The environment's variables `names`, as far as they are set and not empty."""
    return {name: os.environ[name] for name in names if os.environ.get(name)}
