"""Torch's stores as tweed opens, calls and reads them: open at one address, and believed of nobody.

Torch's own listen on all interfaces, whatever host they are given, and have no lock. What they hold only says
who is to be called: who is called proves who it is. So a stranger that writes there can stop a start, and no
more; the error names the store.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from tweed import _core
from tweed.errors import PeerLost, UsageError

#: No value that tweed reads may be longer; torch's own limit is the same.
MOST_BYTES = 8 << 20
#: Nor a name, an address or the like.
MOST_TEXT = 1000
_MOST_SHOWN = 200
#: What reading raises where a value is of another form than it should be.
_NONSENSE = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)


def open_store(host: str, port: int = 0, timeout_s: float = 300.0) -> TCPStore:
    """A store in this process that listens at this address of its own, and at no other.

    Args:
      host: a name or an address of this machine.
      port: 0: any that is free, see the store's `port`.
      timeout_s: of each of this process's requests.

    Raises:
      UsageError: there is no secret, and it is neither loopback nor a testbed's address.
      OSError: it cannot listen there.
    """
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    _check_near(host, str(address[0]))
    listener = socket.create_server(address[:2], family=family)
    return TCPStore(
        str(address[0]),
        listener.getsockname()[1],
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=timeout_s),
        master_listen_fd=listener.detach(),
    )


def reach_store(host: str, port: int, patience_s: float, timeout_s: float | None = None) -> TCPStore:
    """The store that another process has opened there; torch itself would try for minutes.

    Args:
      patience_s: for so long it is called.
      timeout_s: of each request; None: `patience_s`.

    Raises:
      UsageError: there is no secret, and it is neither on loopback nor in a testbed.
      PeerLost: it does not answer; or there is no secret, and it is another user's.
    """
    why: Exception | str = "the name has no address"
    try:
        addresses = [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except OSError as error:
        addresses, why = [], error
    for address in dict.fromkeys(addresses):
        _check_near(f"{host}:{port}", address)
        try:
            if not has_secret():
                _core.check_listener(join_place(address, port), os.environ.get("TWEED_TESTBED"))
            socket.create_connection((address, port), timeout=patience_s).close()
            timeout = timedelta(seconds=patience_s if timeout_s is None else timeout_s)
            return TCPStore(address, port, is_master=False, timeout=timeout)
        except (OSError, PeerLost, dist.DistError) as error:
            why = error
    raise PeerLost(f"the store at {host}:{port} is not reached: {_first_line(why)}")


def join_place(host: str, port: int) -> str:
    """ "host:port", with brackets about an address of IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_place(place: str) -> tuple[str, int]:
    """The host and the port of "host:port". Raises: ValueError for anything else."""
    host, _, port = place.rpartition(":")
    if not host or len(place) > MOST_TEXT or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{place[:_MOST_SHOWN]!r} is no host:port")
    return host.strip("[]"), int(port)


def has_secret() -> bool:
    """This process has a secret, which proves who belongs to the run."""
    return any(os.environ.get(name) for name in ("TWEED_SECRET", "TWEED_SECRET_FILE"))


def _check_near(place: str, address: str) -> None:
    here = os.environ.get("TWEED_TESTBED") == os.readlink("/proc/self/ns/net")
    if not (has_secret() or here or ipaddress.ip_address(address.partition("%")[0]).is_loopback):
        raise UsageError(
            f"the store at {place} is not on loopback, and without a secret no other is opened or called: "
            "give all the same TWEED_SECRET_FILE (make one with: openssl rand -hex 32), or take 127.0.0.1"
        )


@contextlib.contextmanager
def reading(store: Any, what: str) -> Iterator[None]:
    """Within, something is read that a store holds, of which nothing is believed.

    Raises: PeerLost, which names the store, where it cannot be read, or the store is gone.
    """
    try:
        yield
    except dist.DistNetworkError as error:
        raise PeerLost(
            f"the store at {place_of(store)} is gone: the process that keeps it, which is rank 0's or "
            f"torchrun, has ended; see its output ({_first_line(error)})"
        ) from error
    except _NONSENSE as error:
        if isinstance(error, UsageError):
            raise
        raise PeerLost(
            f"the store at {place_of(store)} holds something else than {what}: {_first_line(error)}. Another "
            "program writes there, or another version of tweed. Start again with a new port that only this "
            "run reaches (docs/security.md)"
        ) from error


def value(store: Any, key: str, most_bytes: int = MOST_BYTES) -> bytes:
    """What a store holds under this name, which is waited for. Raises: ValueError if it is longer."""
    found: bytes = store.get(key)
    return limited(found, most_bytes)


def limited(found: bytes, most_bytes: int = MOST_BYTES) -> bytes:
    """Returns `found` as it is. Raises: ValueError if there are more of them."""
    if len(found) > most_bytes:
        raise ValueError(f"{len(found)} bytes, and there may be {most_bytes}")
    return found


def text(said: Any) -> str:
    """A text that is no longer than names and addresses are. Raises: ValueError for anything else."""
    if not isinstance(said, str) or len(said) > MOST_TEXT:
        raise ValueError(f"{str(said)[:_MOST_SHOWN]!r} is no name")
    return said


def whole(said: Any, least: int = 0, most: int = (1 << 64) - 1) -> int:
    """A whole number within these bounds. Raises: ValueError for anything else."""
    if type(said) is not int or not least <= said <= most:
        raise ValueError(f"{str(said)[:_MOST_SHOWN]!r} is no number from {least} to {most}")
    return said


def place_of(store: Any) -> str:
    """Where a store is, in words: "host:port" of a `TCPStore`, the kind of others."""
    while (beneath := getattr(store, "underlying_store", None)) is not None:
        store = beneath
    host = getattr(store, "host", None)
    return type(store).__name__ if host is None else join_place(str(host), store.port)


def _first_line(error: Exception | str) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:MOST_TEXT]
