"""The launcher's side: start ranks, hear from them, kill one, and leave nothing behind.

    launcher ── starts ──> fork server (torch imported, one thread) ── forks ──> rank 0 .. n-1

The server leaves when the launcher is gone, however it went, and the kernel kills the ranks with the server.
The launcher itself need not import torch.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Self, cast

from tweed.errors import DeadlineExceeded, TweedError, UsageError
from tweed.forkserver import server
from tweed.testbed import rank_process
from tweed.testbed.host_network import HostNetwork
from tweed.testbed.live_network import opened
from tweed.testbed.network import Network
from tweed.testbed.rendezvous import rendezvous


class RankFailed(TweedError):
    """A rank raised or died.

    The text gives its number and its traceback; `rank` is the number, `__cause__` the error, if there is one.
    """

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.text)
        self.rank = failed.rank
        self.__cause__ = failed.error


@dataclass(frozen=True, slots=True)
class Said:
    """Rank `rank` called `say(value)`."""

    rank: int
    value: Any


@dataclass(frozen=True, slots=True)
class Ended:
    """The function of rank `rank` returned `value`."""

    rank: int
    value: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """Rank `rank` raised `error` or died (then `error` is None). `when` is in seconds of `time.monotonic`."""

    rank: int
    text: str
    error: BaseException | None = None
    when: float = field(default_factory=time.monotonic)


#: What is told of ranks.
Event = Said | Ended | Failed


class Ranks:
    """`size` processes that run `fn(rank, size, *args)`. A context manager: leaving it ends all of them.

    Args:
      fn: a module-level function. It, its arguments and its result are pickled.
      size: number of ranks, 1 or more.
      args: given to every rank after `rank` and `size`.
      backend: if given, each rank is in a default process group of this torch backend while `fn` runs.
      bed: if given, each rank lives in its namespace there; else all share this process's network.

    Each rank leads its own process group, so that Ctrl-C in the terminal reaches the launcher alone. It has
    the launcher's environment, one thread for torch, and prints the stacks of its threads on SIGUSR1.

    Cost: some 10 ms per rank; the first use in a process adds the start of the server, about four seconds.

    Example:
      >>> with Ranks(max, 2) as ranks:
      ...     ranks.join()
      [2, 2]
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        size: int,
        *args: Any,
        backend: str | None = None,
        bed: HostNetwork | None = None,
    ) -> None:
        if size < 1:
            raise UsageError(f"cannot start {size} ranks: at least one is needed")
        if bed is not None and bed.size < size:
            raise UsageError(f"cannot start {size} ranks in a testbed that was opened for {bed.size}")
        self.size = size
        self._bed = bed
        self._open: dict[int, connection.Connection] = {}
        self._processes: list[ForkServerProcess] = []
        self._finalizer = weakref.finalize(self, _end, self._processes)
        server.start()
        self._job = rank_process.Job(_import_root(fn), pickle.dumps((fn, args)))
        with rendezvous(backend, bed) as of_rank:
            for rank in range(size):
                self._processes.append(self._started(rank, of_rank(rank)))

    def _started(self, rank: int, rendezvous: rank_process.Rendezvous | None) -> ForkServerProcess:
        context = multiprocessing.get_context("forkserver")
        ours, theirs = context.Pipe(duplex=False)
        home = None if self._bed is None else self._bed.home(rank)
        task = rank_process.Task(
            rank, self.size, self._job, dict(os.environ) | server.ONE_THREAD, home, rendezvous
        )
        process = context.Process(target=rank_process.enter, args=(theirs, task), name=f"rank {rank}")
        process.start()
        theirs.close()
        self._open[rank] = ours
        return process

    def restart(self, rank: int) -> None:
        """Starts a rank anew that has ended or failed: in the environment as it is now, and in no group."""
        self._processes[rank].join()
        self._processes[rank] = self._started(rank, None)

    def pid(self, rank: int) -> int:
        """Process id of `rank`."""
        pid = self._processes[rank].pid
        assert pid is not None  # `_start` has started it
        return pid

    def running(self) -> list[int]:
        """Ranks that have neither ended nor failed, as far as `poll` has told."""
        return sorted(self._open)

    def kill(self, rank: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Sends signal `number` to `rank`, if it still runs. `poll` tells of its end."""
        if self._processes[rank].is_alive():
            os.kill(self.pid(rank), number)

    def poll(self, timeout: float | None = None) -> list[Event]:
        """Waits until something happened, `timeout` seconds at most (None: without limit), and tells what.

        Returns an empty list when time is up or no rank runs. Each rank's last event is `Ended` or `Failed`.
        """
        pipes = {pipe: rank for rank, pipe in self._open.items()}
        graves = {self._processes[rank].sentinel: rank for rank in self._open}
        ready = connection.wait([*pipes, *graves], timeout) if pipes else []
        ranks = {pipes[r] if isinstance(r, connection.Connection) else graves[cast(int, r)] for r in ready}
        return [event for rank in sorted(ranks) for event in self._receive(rank)]

    def _receive(self, rank: int) -> Iterator[Event]:
        pipe = self._open[rank]
        dead = not self._processes[rank].is_alive()
        try:
            while pipe.poll():
                event = _event(rank, self.size, pickle.loads(pipe.recv_bytes()))
                if not isinstance(event, Said):
                    self._close(rank)
                    yield event
                    return
                yield event
        except EOFError:
            self._processes[rank].join()
            dead = True
        if dead:
            self._close(rank)
            yield Failed(rank, f"rank {rank} of {self.size} {_death(self._processes[rank].exitcode)}")

    def _close(self, rank: int) -> None:
        self._open.pop(rank).close()

    def join(self, timeout: float | None = None) -> list[Any]:
        """Waits for all ranks and returns what they returned, by rank. What ranks said before is dropped.

        Raises:
          RankFailed: the first failure; the other ranks were ended.
          DeadlineExceeded: `timeout` seconds passed. Names the ranks that still ran; they have printed their
            stacks to the standard error stream and were ended.
        """
        end = None if timeout is None else time.monotonic() + timeout
        results: dict[int, Any] = {}
        while self._open:
            events = self.poll(None if end is None else max(0.0, end - time.monotonic()))
            failures = [event for event in events if isinstance(event, Failed)]
            if failures:
                raise RankFailed(self.blame(failures))
            if not events:
                raise DeadlineExceeded(self._late(timeout))
            results |= {event.rank: event.value for event in events if isinstance(event, Ended)}
        return [results[rank] for rank in range(self.size)]

    def blame(self, failures: list[Failed]) -> Failed:
        """Ends all ranks and picks the failure that the others may follow from.

        That is a death, else the first error, of `failures` and of those that were on their way.
        """
        failures = failures + [event for event in self.poll(0.05) if isinstance(event, Failed)]
        self.stop()
        return min(failures, key=lambda failure: (failure.error is not None, failure.when))

    def _late(self, timeout: float | None) -> str:
        late = self.running()
        for rank in late:
            self.kill(rank, signal.SIGUSR1)
            connection.wait([self._processes[rank].sentinel], 0.05)  # so that stacks do not mix
        self.stop()
        where = "their stacks are on the error stream"
        return f"ranks {late} of {self.size} still ran after {timeout} s; {where}"

    def stop(self) -> None:
        """Kills every rank that still runs and waits for their end. May be called again."""
        self._finalizer()
        for rank in self.running():
            self._close(rank)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def run_ranks(
    fn: Callable[..., Any],
    n: int,
    *args: Any,
    timeout: float = 60.0,
    backend: str | None = None,
    network: Network | None = None,
) -> list[Any]:
    """Runs `fn(rank, n, *args)` in `n` processes and returns their results by rank.

    Args as in `Ranks`; `timeout` in seconds, for all of them once they are started. With a `network`, they
    run in a testbed that is built for this call.

    Raises:
      RankFailed, DeadlineExceeded: as in `Ranks.join`. In each case no rank is left.
      NoTestbed: the network cannot be built here.

    Cost: that of `Ranks`, and of `opened` if there is a network.

    Example:
      >>> run_ranks(max, 3)  # `max(rank, size)` in three processes
      [3, 3, 3]
    """
    place = nullcontext() if network is None else opened(network, n)
    with place as bed, Ranks(fn, n, *args, backend=backend, bed=bed) as ranks:
        return ranks.join(timeout)


def say(value: Any) -> None:
    """Inside a rank: sends `value` to the launcher, where `Ranks.poll` gives it as `Said`.

    Raises: UsageError outside a rank.
    """
    rank_process.say(value)


def _import_root(fn: Callable[..., Any]) -> str | None:
    """Folder from which `fn`'s module can be imported by its name. A test's module may be on no path here."""
    path = getattr(sys.modules.get(fn.__module__), "__file__", None)
    return str(Path(path).parents[fn.__module__.count(".")]) if path else None


def _event(rank: int, size: int, message: rank_process.Message) -> Event:
    match message:
        case rank_process.Spoke(value):
            return Said(rank, value)
        case rank_process.Returned(value):
            return Ended(rank, value)
        case rank_process.Raised(text, error, when):
            return Failed(rank, f"rank {rank} of {size} failed:\n{text}", _revive(error), when)


def _revive(error: bytes) -> BaseException | None:
    try:
        revived = pickle.loads(error)
    except Exception:  # noqa: BLE001 an exception's own constructor may raise anything
        return None
    return revived if isinstance(revived, BaseException) else None


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        return f"died of {signal.Signals(-code).name}"
    return f"left with exit code {code} before its function returned; its output may say why"


def _end(processes: list[ForkServerProcess]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.join()
