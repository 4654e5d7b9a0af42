"""Whether packets of full size cross to an address, found out by connections of their own.

Over a path that loses every packet above some size, and tells nobody, TCP sends one full segment again and
again, and what comes after it waits. On one connection that looks like a path that just loses much. So a few
others are opened: to connect takes small packets alone, and what is sent then takes full ones.
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import termios
import time
from collections.abc import Callable

_TRIES = 3
_BYTES = 2**14  # some full segments, whatever the interface's MTU
_LOOK_S = 0.05


def cross(address: str, patience_s: float) -> bool:
    """Whether full packets reach `address`, "host:port", where somebody listens.

    False only where all of `_TRIES` connections came about, and nothing that they sent was acknowledged
    within `patience_s` after that. The other end sees connections that say nothing it knows, and refuses
    them.

    Cost: `patience_s` at most for the connections, and as much for what they send.
    """
    host, _, port = address.rpartition(":")
    with contextlib.ExitStack() as held, contextlib.suppress(OSError):
        lines = [held.enter_context(_call(host.strip("[]"), int(port))) for _ in range(_TRIES)]
        if _becomes_true(lambda: all(map(_is_connected, lines)), patience_s):
            sent = min(line.send(bytes(_BYTES)) for line in lines)
            return _becomes_true(lambda: any(_has_heard(line, sent) for line in lines), patience_s)
    return True  # nothing is known of full ones: they could not be sent


def _becomes_true(look: Callable[[], bool], patience_s: float) -> bool:
    end = time.monotonic() + patience_s
    while not (found := look()) and time.monotonic() < end:
        time.sleep(_LOOK_S)
    return found


def _call(host: str, port: int) -> socket.socket:
    line = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    line.setblocking(False)
    line.connect_ex((host, port))
    return line


def _is_connected(line: socket.socket) -> bool:
    try:
        line.getpeername()
    except OSError:
        return False
    return True


def _has_heard(line: socket.socket, sent: int) -> bool:
    """Some of `sent` bytes were acknowledged; or it was refused, by who may have read them."""
    (left,) = struct.unpack("i", fcntl.ioctl(line, termios.TIOCOUTQ, bytes(4)))
    return bool(left < sent) or not _is_connected(line)
