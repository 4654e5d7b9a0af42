"""A process of its own that calls at other processes' addresses and means no good. It imports nothing heavy.

Started with a line of JSON: `descriptors` (of those it calls) and `recorded` (hex). Then it obeys lines:
`garbage 200` attacks so often a second and answers `begun` when it has called once; `stop` hangs up
everywhere and answers how many connections it had made.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count, cycle
from typing import Any, NamedTuple

_HELD = 3000  # connections that it keeps open at most
_PATIENCE_S = 1.0
_PREAMBLE_BYTES, _HEAD_BYTES = 12, 3
_CLAIM = (
    b"\x01" + 40 * b"\xff"
)  # a frame as long as its length can say, then 4 GiB wherever one of four bytes stands
_OTHER_SECRET = "a secret of another run than the benchmark's"


class _Said(NamedTuple):
    """What a member has been heard to say, by parts."""

    preamble: bytes
    first: bytes
    rest: bytes


def cut(recorded: bytes) -> _Said:
    """The preamble, the first message of the handshake with its head, and the rest."""
    body = recorded[_PREAMBLE_BYTES:]
    end = _HEAD_BYTES + int.from_bytes(body[1:_HEAD_BYTES], "big")
    return _Said(recorded[:_PREAMBLE_BYTES], body[:end], body[end:])


#: What it says over a socket.
SAYS: dict[str, Callable[[_Said], bytes]] = {
    "garbage": lambda said: os.urandom(1000),
    "claims of 4 GiB": lambda said: said.preamble + _CLAIM,
    "half a handshake": lambda said: said.preamble + said.first,
    "a handshake heard before": b"".join,
    "silence": lambda said: b"",
    "a flood of silence": lambda said: b"",
}
#: What it does as a whole tweed.
IMPOSTOR = "wrong secret"

_Call = Callable[[deque[socket.socket]], None]


def _raw(kind: str, descriptors: list[dict[str, Any]], recorded: bytes) -> _Call:
    """Calls at all addresses in turn, says its say, and lets the connection stand."""
    ports = [(descriptor["tcp"].rpartition(":")[2], descriptor["local"]) for descriptor in descriptors]
    addresses: Iterator[tuple[socket.AddressFamily, Any]] = cycle(
        address
        for port, name in ports
        for address in ((socket.AF_INET, ("127.0.0.1", int(port))), (socket.AF_UNIX, f"\0{name}"))
    )

    def call(held: deque[socket.socket]) -> None:
        family, address = next(addresses)
        caller = socket.socket(family, socket.SOCK_STREAM)
        held.append(caller)
        caller.settimeout(_PATIENCE_S)
        caller.connect(address)
        caller.sendall(SAYS[kind](cut(recorded)))

    return call


def _impostor(descriptors: list[dict[str, Any]]) -> _Call:
    """Wants to join, and has another secret."""
    from tweed import _core
    from tweed.errors import TweedError

    engine = _core.Node(transport="tcp", streams=1, secret=_OTHER_SECRET, dial_only=True)
    called, numbers = cycle(json.dumps(descriptor).encode() for descriptor in descriptors), count(1)

    def call(_: deque[socket.socket]) -> None:
        with contextlib.suppress(TweedError):
            engine.join("impostor", next(numbers), 1, [next(called), engine.card()], [], _PATIENCE_S)

    return call


def _attack(call: _Call, pause_s: float) -> int:
    """Calls until somebody says stop. A call that is late is made at once, and none is left out."""
    held: deque[socket.socket] = deque()
    made, due = 0, time.monotonic()
    while not select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
        with contextlib.suppress(OSError):  # an address where nobody listens
            call(held)
        made += 1
        if made == 1:
            print("begun", flush=True)
        if len(held) > _HELD:
            held.popleft().close()
        due += pause_s
    sys.stdin.readline()
    for caller in held:
        caller.close()
    return made


def main() -> None:
    """Obeys until its input ends. Its own work should cost the run as little as may be."""
    os.nice(19)
    told = json.loads(sys.stdin.readline())
    descriptors, recorded = told["descriptors"], bytes.fromhex(told["recorded"])
    calls = {kind: _raw(kind, descriptors, recorded) for kind in SAYS} | {IMPOSTOR: _impostor(descriptors)}
    while words := sys.stdin.readline().split():
        kind, rate = " ".join(words[:-1]), float(words[-1])
        print(_attack(calls[kind], 1 / rate), flush=True)


if __name__ == "__main__":
    main()
