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
        message = channel.receive(end)
        kind, number = HEAD.unpack_from(message)
        content = memoryview(message)[HEAD.size :]
        if kind == Kind.TASK:
            assert run is not None  # a setup comes first
            outcome, result = _outcome(run, content)
            channel.send(end, HEAD.pack(outcome, number), result)
            continue
        try:
            run = _prepared(content)
        except Exception:  # noqa: BLE001 whatever a module raises while it is imported is the launcher's to judge
            channel.send(end, HEAD.pack(Kind.BROKEN, number), traceback.format_exc().encode())
            return
        channel.send(end, HEAD.pack(Kind.READY, number))


def _prepared(setup: memoryview) -> Callable[[Any], Any]:
    """What is called with a payload."""
    import torch

    child.check_server()
    torch.set_num_threads(1)
    name, has_shared, shared = unpacked(setup)
    function = functions.found(name)
    return (lambda payload: function(payload, shared)) if has_shared else function


def _outcome(run: Callable[[Any], Any], payload: memoryview) -> tuple[Kind, bytes | bytearray]:
    try:
        return Kind.RETURNED, packed(run(unpacked(payload)), classes=())
    except BaseException:  # noqa: BLE001 whatever ended the function is the launcher's to judge
        return Kind.RAISED, traceback.format_exc().encode()
