"""A worker's process: takes its function and what is shared, then runs one task after the other.

    launcher                               worker
    the function's name, and shared  ->
                                     <-    READY, or BROKEN with a traceback, and the process ends
    copy, payload                    ->
                                     <-    RETURNED, copy, result; or RAISED, copy, traceback

All in the form of `tweed.exchange.encoding`. The worker ends when the launcher closes the socket.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import IntEnum
from typing import Any, NoReturn

from tweed.exchange.encoding import packed, unpacked
from tweed.forkserver import child
from tweed.workloads.tasks import channel, functions
from tweed.workloads.tasks.events import Event, Lost, Raised, Ready, Returned

Buffer = bytes | bytearray | memoryview
#: What a worker says, in two parts: a head, and what follows it.
Message = tuple[bytes, bytes | bytearray]

#: The number of a copy, in front of its payload.
COPY = struct.Struct("<Q")


class Kind(IntEnum):
    """What a worker says."""

    READY = 0
    BROKEN = 1
    RETURNED = 2
    RAISED = 3


#: What a worker's message begins with: a kind, and the number of a copy if it is about one.
HEAD = struct.Struct("<BQ")


def enter(end: socket.socket, environment: Mapping[str, str]) -> NoReturn:
    """Runs tasks until the launcher is gone, and ends the process."""
    child.die_with_server()
    os.setpgid(0, 0)  # Ctrl-C in the terminal is for the launcher
    child.take_interrupts()
    os.environ.clear()
    os.environ.update(environment)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    with suppress(EOFError, OSError):  # the launcher is gone, or needs no more
        serve(end)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads of libraries may not hold the process up


def serve(end: socket.socket) -> None:
    """Runs tasks that come through `end`. Raises EOFError or OSError when the other end is gone."""
    run, message = begun(channel.receive(end))
    channel.send(end, *message)
    while run is not None:
        received = channel.receive(end)
        (copy,) = COPY.unpack_from(received)
        channel.send(end, *answer(run, copy, memoryview(received)[COPY.size :]))


def begun(setup: Buffer) -> tuple[Callable[[Any], Any] | None, Message]:
    """What is called with a payload, None if that cannot be; and what the launcher is told of it."""
    try:
        run = _prepared(setup)
    except Exception:  # noqa: BLE001 whatever a module raises while it is imported is the launcher's to judge
        return None, (HEAD.pack(Kind.BROKEN, 0), traceback.format_exc().encode())
    return run, (HEAD.pack(Kind.READY, 0), b"")


def answer(run: Callable[[Any], Any], copy: int, payload: Buffer) -> Message:
    """Runs a copy of a task. Returns what the launcher is told of it."""
    try:
        return HEAD.pack(Kind.RETURNED, copy), packed(run(unpacked(payload)), classes=())
    except BaseException:  # noqa: BLE001 whatever ended the function is the launcher's to judge
        return HEAD.pack(Kind.RAISED, copy), traceback.format_exc().encode()


def heard(worker: int, message: Buffer) -> Event:
    """The launcher's side: what it means that a worker sent this message."""
    kind, copy = HEAD.unpack_from(message)
    content = memoryview(message)[HEAD.size :]
    match Kind(kind):
        case Kind.READY:
            return Ready(worker)
        case Kind.RETURNED:
            return Returned(copy, unpacked(content))
        case Kind.RAISED:
            return Raised(copy, bytes(content).decode())
        case Kind.BROKEN:
            return Lost(worker, f"could not begin:\n{bytes(content).decode()}")


def _prepared(setup: Buffer) -> Callable[[Any], Any]:
    """What is called with a payload."""
    import torch

    child.check_server()
    torch.set_num_threads(1)
    name, has_shared, shared = unpacked(setup)
    function = functions.found(name)
    return (lambda payload: function(payload, shared)) if has_shared else function
