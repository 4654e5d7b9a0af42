"""A rank whose process is killed and comes back, as on a spot machine: each life is a child of the rank.

    def trains(life: int, rank: int): ...       # life 0 founds, later ones join
    def rank_main(rank, size, folder):
        return lived(trains, folder, rank)      # what the life that ends by itself returns

`kill(folder, rank)` ends the life under way, from any process of this host, and `set_clock` shifts the wall
clock that Python sees in it and in those that follow. The monotonic clock is never set, so it stays.
"""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tweed.errors import PeerLost
from tweed.files import write_atomic
from tweed.forkserver.child import die_with_parent

_LOST = 75  # EX_TEMPFAIL: it may be tried again
_SHIFT = struct.Struct("=d")  # seconds


def restarted(fn: Callable[..., Any], folder: Path, rank: int, *args: Any) -> Any:
    """Runs `fn(life, rank, *args)` in a child, and again with the next life when it was killed, or lost.

    Raises: RuntimeError if a life ended in another way than by SIGKILL or `PeerLost`, without a value.
    """
    context = multiprocessing.get_context("fork")
    life = 0
    while True:
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_life, args=(theirs, folder, fn, life, rank, *args))
        child.start()
        theirs.close()
        try:
            return ours.recv()
        except EOFError:
            child.join()
        if child.exitcode not in (-signal.SIGKILL, _LOST):
            raise RuntimeError(f"life {life} of rank {rank} has failed: exit code {child.exitcode}")
        life += 1


def kill(folder: Path, rank: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Signals the life of this rank that is under way; one that has just ended is followed by the next."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid(folder, rank), number)


def pid(folder: Path, rank: int) -> int:
    """The process id of the life that is under way, or has just ended."""
    return int(_pid(folder, rank).read_text())


def set_clock(folder: Path, rank: int, seconds: float) -> None:
    """From now on `time.time` in this rank's lives is so much later than it was; earlier, if negative."""
    with (folder / f"clock-{rank}").open("r+b") as file:
        (before,) = _SHIFT.unpack(file.read(_SHIFT.size))
        file.seek(0)
        file.write(_SHIFT.pack(before + seconds))


def _take_clock(folder: Path, rank: int) -> None:
    """Puts a wall clock in the place of Python's that others can set, as a file that both have mapped."""
    place = folder / f"clock-{rank}"
    if not place.exists():
        write_atomic(place, _SHIFT.pack(0.0))
    with place.open("rb") as file:
        shift = mmap.mmap(file.fileno(), _SHIFT.size, prot=mmap.PROT_READ)
    now_s, now_ns = time.time, time.time_ns
    time.time = lambda: now_s() + _SHIFT.unpack_from(shift)[0]
    time.time_ns = lambda: now_ns() + int(_SHIFT.unpack_from(shift)[0] * 1e9)


def _life(pipe: Connection, folder: Path, fn: Callable[..., Any], life: int, rank: int, *args: Any) -> None:
    die_with_parent()
    _take_clock(folder, rank)
    write_atomic(_pid(folder, rank), str(os.getpid()))
    try:
        pipe.send(fn(life, rank, *args))
    except PeerLost as error:
        print(f"life {life} of rank {rank}: {error}", file=sys.stderr, flush=True)
        os._exit(_LOST)


def _pid(folder: Path, rank: int) -> Path:
    return folder / f"pid-{rank}"
