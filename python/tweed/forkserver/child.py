"""What a process that comes from the fork server does first."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from multiprocessing import forkserver
from typing import Any

from tweed.errors import UsageError

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def take_interrupts() -> None:
    """Lets SIGINT raise KeyboardInterrupt here, whatever this process inherited.

    A shell starts background jobs with SIGINT ignored, and the fork server is started with it blocked.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def die_with_server() -> None:
    """Ties this process to the fork server, and lets the server leave when the launcher is gone.

    The server leaves when nobody holds the write end of its pipe. multiprocessing hands that end to every
    child, so that children can start children; one gives it back, else it would keep its server alive.
    """
    warm = sys.modules.get("tweed.forkserver.warm")
    die_with_parent()
    if warm is not None and os.getppid() != warm.PID:
        os._exit(1)  # the server went before the line above
    server: Any = vars(forkserver)["_forkserver"]
    os.close(server._forkserver_alive_fd)
    server._forkserver_alive_fd = None


def die_with_parent() -> None:
    """This process is killed when its parent ends, whatever ends it."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def check_server() -> None:
    """Raises UsageError if the fork server has more threads than one: a fork copies only one of them."""
    warm = sys.modules.get("tweed.forkserver.warm")
    count = warm.threads(os.getppid()) if warm is not None and warm.PID == os.getppid() else 1
    if count != 1:
        raise UsageError(f"the fork server has {count} threads: a module named to preload() starts them")
