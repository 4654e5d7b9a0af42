"""The rank's side of `ranks.py`: what runs in a process between the fork and its end."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from tweed import metrics
from tweed.errors import UsageError
from tweed.forkserver import child
from tweed.testbed import counters

_launcher: Connection | None = None


@dataclass(frozen=True, slots=True)
class Home:
    """Where a rank lives: the namespaces it enters, in this order, and what its environment says of that."""

    namespaces: tuple[str, ...]
    environment: dict[str, str]


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where ranks meet: a store at this address, made by rank 0 from `listener` if it is given."""

    backend: str
    address: str
    port: int
    listener: socket.socket | None


@dataclass(frozen=True, slots=True)
class Job:
    """Pickled function and arguments, and the folder from which the function's module is imported."""

    root: str | None
    call: bytes

    def load(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The function and its arguments."""
        if self.root is not None and self.root not in sys.path:
            sys.path.append(self.root)
        fn, args = pickle.loads(self.call)
        return fn, args


@dataclass(frozen=True, slots=True)
class Task:
    """What one rank is to do."""

    rank: int
    size: int
    job: Job
    environment: dict[str, str]
    home: Home | None
    rendezvous: Rendezvous | None


@dataclass(frozen=True, slots=True)
class Spoke:
    """The rank has called `say(value)`."""

    value: Any


@dataclass(frozen=True, slots=True)
class Returned:
    """The function returned `value`."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The function raised: traceback, pickled exception (empty if that failed), `time.monotonic()`."""

    text: str
    error: bytes
    when: float


Message = Spoke | Returned | Raised


def say(value: Any) -> None:
    """Sends `value` to the launcher. Raises UsageError in a process that is no rank."""
    if _launcher is None:
        raise UsageError("say() speaks to the launcher of a rank, and this process is no rank of `Ranks`")
    _launcher.send_bytes(pickle.dumps(Spoke(value)))


def sent_bytes() -> int | None:
    """Inside a rank of a testbed: bytes that its link has sent so far, headers included. None elsewhere.

    Example:
      >>> sent_bytes() is None  # this process is no rank
      True
    """
    if "TWEED_TESTBED" not in os.environ:
        return None
    return counters.link(Path("/proc/self/net/dev").read_text()).sent_bytes


def enter(pipe: Connection, task: Task) -> NoReturn:
    """Runs `task`, sends the outcome through `pipe` and ends the process."""
    global _launcher
    _launcher = pipe
    child.die_with_server()
    os.setpgid(0, 0)
    child.take_interrupts()
    os.environ.clear()
    os.environ.update(task.environment)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    outcome = _outcome(task)
    metrics.stop()  # an exit like the one below runs nobody's last words
    with suppress(BrokenPipeError):  # the launcher is gone, or has heard enough
        pipe.send_bytes(outcome)
    if node := sys.modules.get("tweed.torch.node"):
        node.leave()  # others may still be in a call that this rank has come back from
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # the result is out; threads of libraries may not hold the process up


def _outcome(task: Task) -> bytes:
    try:
        if task.home is not None:
            _move_in(task.home)
        fn, args = task.job.load()
        child.check_server()
        with _group(task):
            return pickle.dumps(Returned(fn(task.rank, task.size, *args)))
    except BaseException as error:  # noqa: BLE001 whatever ended the function is the launcher's to judge
        return pickle.dumps(Raised(traceback.format_exc(), _pickled(error), time.monotonic()))


def _move_in(home: Home) -> None:
    """Enters the namespaces of `home`. The kernel wants a process with one thread, as this one still is."""
    libc = ctypes.CDLL(None, use_errno=True)
    for path in home.namespaces:
        with _opened(path) as namespace:
            if libc.setns(namespace, 0) != 0:
                raise UsageError(f"cannot enter {path}: {os.strerror(ctypes.get_errno())}")
    os.environ.update(home.environment)


@contextmanager
def _opened(path: str) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise UsageError(f"the testbed of this rank is gone: {error}") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _pickled(error: BaseException) -> bytes:
    try:
        return pickle.dumps(error)
    except Exception:  # noqa: BLE001 pickling runs foreign code
        return b""


@contextmanager
def _group(task: Task) -> Iterator[None]:
    """Holds a default process group, if the task has a rendezvous. After an error the process ends it."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if task.rendezvous is None:
        yield
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = _store(task.rendezvous, task)
    dist.init_process_group(task.rendezvous.backend, store=store, rank=task.rank, world_size=task.size)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def _store(rendezvous: Rendezvous, task: Task) -> Any:
    from torch._C._distributed_c10d import TCPStore

    listener, is_master = rendezvous.listener, task.rank == 0
    if listener is None and not is_master:
        _wait_for(rendezvous)
    with _no_names():
        return TCPStore(
            rendezvous.address,
            rendezvous.port,
            task.size,
            is_master=is_master,
            wait_for_workers=False,
            master_listen_fd=None if listener is None else listener.detach(),
        )


def _wait_for(rendezvous: Rendezvous) -> None:
    """Returns when the store listens. Torch itself would only try again after a second."""
    while True:
        try:
            socket.create_connection((rendezvous.address, rendezvous.port)).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.01)


@contextmanager
def _no_names() -> Iterator[None]:
    """Keeps from the error stream torch's warning that an address has no name: in a testbed none has."""
    before, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(nothing)
