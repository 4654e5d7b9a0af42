"""A worker's process: takes a function and what is shared, then runs one task after the other.

    launcher                                     worker
    SETUP, map, the function's name, shared  ->
                                             <-  READY, map; or BROKEN with a traceback, and the process ends
    TASK, copy, payload                      ->
                                             <-  RETURNED, copy, result; or RAISED, copy, traceback

All in the form of `tweed.exchange.encoding`. Another map begins with another setup. The worker ends when the
launcher closes the socket.
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


class Kind(IntEnum):
    """What a message is: the first two are the launcher's, the others a worker's."""

    SETUP = 0
    TASK = 1
    READY = 2
    BROKEN = 3
    RETURNED = 4
    RAISED = 5


#: What a message begins with: a kind, and the number of a map or a copy.
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
    run: Callable[[Any], Any] | None = None
    while True:
        received = channel.receive(end)
        kind, number = HEAD.unpack_from(received)
        content = memoryview(received)[HEAD.size :]
        if kind == Kind.TASK:
            assert run is not None  # a setup comes first
            channel.send(end, *answer(run, number, content))
            continue
        run, message = begun(number, content)
        channel.send(end, *message)
        if run is None:
            return


def begun(number: int, setup: Buffer) -> tuple[Callable[[Any], Any] | None, Message]:
    """What is called with a payload, None if that cannot be; and what the launcher is told of it.

    Args:
      number: of the map.
    """
    try:
        run = _prepared(setup)
    except Exception:  # noqa: BLE001 whatever a module raises while it is imported is the launcher's to judge
        return None, (HEAD.pack(Kind.BROKEN, number), traceback.format_exc().encode())
    return run, (HEAD.pack(Kind.READY, number), b"")


def answer(run: Callable[[Any], Any], copy: int, payload: Buffer) -> Message:
    """Runs a copy of a task. Returns what the launcher is told of it."""
    try:
        return HEAD.pack(Kind.RETURNED, copy), packed(run(unpacked(payload)), classes=())
    except BaseException:  # noqa: BLE001 whatever ended the function is the launcher's to judge
        return HEAD.pack(Kind.RAISED, copy), traceback.format_exc().encode()


def heard(worker: int, message: Buffer, current: int) -> Event | None:
    """The launcher's side: what it means that a worker sent this message; None: of an earlier map.

    Args:
      current: the number of the map that is under way.
    """
    kind, number = HEAD.unpack_from(message)
    content = memoryview(message)[HEAD.size :]
    match Kind(kind):
        case Kind.READY:
            return Ready(worker) if number == current else None
        case Kind.RETURNED:
            return Returned(number, unpacked(content))
        case Kind.RAISED:
            return Raised(number, bytes(content).decode())
        case _:
            return Lost(worker, f"could not begin:\n{bytes(content).decode()}")


def _prepared(setup: Buffer) -> Callable[[Any], Any]:
    """What is called with a payload."""
    import torch

    child.check_server()
    torch.set_num_threads(1)
    name, has_shared, shared = unpacked(setup)
    function = functions.found(name)
    return (lambda payload: function(payload, shared)) if has_shared else function
