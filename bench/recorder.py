"""What a member says when it calls: heard by somebody between it and the process that it calls."""

from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tweed import _core

_GROUP = 0x7FFF_0001  # a number that no group of the run has
_TIMEOUT_S = 20.0


def handshake(engine: _core.Node, secret: str) -> bytes:
    """All that a second member says over its stream until a group stands, which is given up again.

    Args:
      engine: the process that is called; it listens.
      secret: its secret.
    """
    caller = _core.Node(transport="tcp", streams=1, secret=secret, dial_only=True)
    descriptors = [engine.card(), caller.card()]
    with socket.create_server(("127.0.0.1", 0)) as between:
        heard = _Heard(between, json.loads(descriptors[0])["tcp"])
        there = json.loads(descriptors[0]) | {"tcp": f"127.0.0.1:{between.getsockname()[1]}"}
        detour = [json.dumps(there).encode(), descriptors[1]]
        with ThreadPoolExecutor(2) as pool:
            groups = [
                pool.submit(one.join, "heard", _GROUP, rank, told, [], _TIMEOUT_S)
                for rank, (one, told) in enumerate(((engine, descriptors), (caller, detour)))
            ]
            found = [group.result() for group in groups]
        recorded = bytes(heard.said)
    del found
    caller.leave()
    return recorded


class _Heard:
    """Passes one connection on, and keeps what the caller says."""

    def __init__(self, between: socket.socket, to: str) -> None:
        self.said = bytearray()
        self._between, self._to = between, to
        threading.Thread(target=self._pass, daemon=True).start()

    def _pass(self) -> None:
        caller, _ = self._between.accept()
        host, _, port = self._to.rpartition(":")
        called = socket.create_connection((host, int(port)))
        threading.Thread(target=_copy, args=(called, caller, None), daemon=True).start()
        _copy(caller, called, self.said)


def _copy(come: socket.socket, go: socket.socket, said: Any) -> None:
    while got := come.recv(1 << 16):
        if said is not None:
            said += got
        go.sendall(got)
    go.shutdown(socket.SHUT_WR)
