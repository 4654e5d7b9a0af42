"""Workers as processes of this machine: they are started, hear, answer, die, and are ended."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from tweed.errors import UsageError
from tweed.forkserver import server
from tweed.forkserver.process import Process
from tweed.workloads.tasks import worker
from tweed.workloads.tasks.channel import Channel
from tweed.workloads.tasks.events import Event, Lost
from tweed.workloads.tasks.worker import HEAD, Kind, heard


@dataclass(slots=True, eq=False)
class _Process:
    """A worker's process and the way to it; `has_ended` says that nothing more comes from there."""

    number: int
    process: Process
    channel: Channel
    has_ended: bool = False

    def end(self) -> None:
        """Ends the process, whatever it is about, and waits for that."""
        self.process.kill()
        self.process.join()
        self.channel.close()


class LocalWorkers:
    """Workers that are processes of this machine, for one map of tasks after the other.

    A context manager: leaving it ends all of them.

    Args:
      count: how many there are; None: as many as this process may use cores.

    Each has the launcher's environment, one thread for torch, and prints its stacks on SIGUSR1.

    Raises: UsageError for fewer than one.
    Cost: some 20 ms per process; the first use in a process adds the start of the fork server, some seconds.

    Example:
      >>> with LocalWorkers(2) as workers:
      ...     squares = map_tasks("math:sqrt", [4.0, 9.0], workers=workers)
      ...     roots = map_tasks("math:sqrt", list(squares.values()), workers=workers)
    """

    def __init__(self, count: int | None = None) -> None:
        self.count = len(os.sched_getaffinity(0)) if count is None else count
        if self.count < 1:
            raise UsageError(f"{count} workers cannot be: give 1 or more")
        self._map, self._setup, self._payloads = 0, bytearray(), list[bytearray]()
        self._running: dict[int, _Process] = {}
        self._selector = selectors.DefaultSelector()
        self._finalizer = weakref.finalize(self, _end_all, self._running)
        server.start()

    def check(self, name: str) -> None:
        """Nothing stands against a function of this name: workers have the launcher's modules."""

    def begin(self, setup: bytearray, payloads: list[bytearray]) -> None:
        """Another map begins: each worker gets `setup`, see `worker`, and says that it is ready for this one.

        Args:
          payloads: by task, as they are sent.
        """
        self._map += 1
        self._setup, self._payloads = setup, payloads
        for number in range(self.count):
            if number in self._running:
                self._prepare(self._running[number])
            else:
                self._start(number)

    def finish(self, busy: Iterable[int]) -> None:
        """The map is over: ends the processes of workers that still run a task of it.

        Others take their places when the next map begins: the results of this one are not held up.
        """
        self._setup, self._payloads = bytearray(), []
        for number in busy:
            if entry := self._running.get(number):
                self._forget(entry)
                entry.process.kill()
                entry.channel.close()

    def run(self, number: int, copy: int, task: int) -> None:
        """Gives a worker a copy of a task. Does not wait; a worker that has ended gets nothing."""
        entry = self._running.get(number)
        if entry is not None and not entry.has_ended:
            entry.channel.send(HEAD.pack(Kind.TASK, copy), self._payloads[task])
            self._watch(entry)

    def replace(self, number: int) -> None:
        """Ends the worker's process, if it runs, and starts another one."""
        if entry := self._running.get(number):
            self._end(entry)
        self._start(number)

    def wait(self, timeout_s: float | None) -> list[Event]:
        """What has happened, after waiting for something for `timeout_s` at most (None: without limit)."""
        ready = self._selector.select(timeout_s)
        entries = {key.data.number: key.data for key, _ in ready}
        told = {key.data.number for key, _ in ready if key.fd == key.data.process.sentinel}
        return [event for number in sorted(entries) for event in self._heard(entries[number], number in told)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._finalizer()
        self._selector.close()

    def _start(self, number: int) -> None:
        entry = self._running[number] = _started(number)
        self._selector.register(entry.channel.socket, selectors.EVENT_READ, entry)
        self._selector.register(entry.process.sentinel, selectors.EVENT_READ, entry)
        self._prepare(entry)

    def _prepare(self, entry: _Process) -> None:
        if not entry.has_ended:
            entry.channel.send(HEAD.pack(Kind.SETUP, self._map), self._setup)
            self._watch(entry)

    def _watch(self, entry: _Process) -> None:
        """Waits until the worker takes more, while there is more for it."""
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if entry.channel.is_sending else 0)
        if self._selector.get_key(entry.channel.socket).events != wanted:
            self._selector.modify(entry.channel.socket, wanted, entry)

    def _end(self, entry: _Process) -> None:
        """Ends the worker's process, and hears nothing more of it."""
        self._forget(entry)
        entry.end()

    def _forget(self, entry: _Process) -> None:
        del self._running[entry.number]
        if not entry.has_ended:
            self._selector.unregister(entry.channel.socket)
        self._selector.unregister(entry.process.sentinel)

    def _heard(self, entry: _Process, is_told_of: bool) -> Iterator[Event]:
        """What a worker has said; at last, if its process has ended or cannot work, that it is lost.

        Args:
          is_told_of: by the fork server: the process has begun, or ended.
        """
        entry.channel.flush()
        is_alive = not is_told_of or entry.process.is_alive()
        try:
            for message in entry.channel.receive():
                event = heard(entry.number, message, self._map)
                if isinstance(event, Lost):
                    self._end(entry)
                    yield event
                    return
                if event is not None:
                    yield event
        except EOFError:
            self._hang_up(entry)
        if not is_alive:
            self._end(entry)
            yield Lost(entry.number, _how_it_ended(entry.process))
        elif not entry.has_ended:
            self._watch(entry)

    def _hang_up(self, entry: _Process) -> None:
        """A worker has closed its socket: it is ending, or is killed. The fork server tells when it has."""
        if not entry.has_ended:
            entry.has_ended = True
            self._selector.unregister(entry.channel.socket)
            entry.process.kill()


def _started(number: int) -> _Process:
    ours, theirs = socket.socketpair()
    environment = dict(os.environ) | server.ONE_THREAD
    name = f"task worker {number}"
    process = Process(target=worker.enter, args=(theirs, environment), name=name)
    try:
        process.start()
    except BaseException:  # Ctrl-C while the server warms up: a worker that comes of it finds no launcher
        ours.close()
        raise
    finally:
        theirs.close()
    return _Process(number, process, Channel(ours))


def _how_it_ended(process: Process) -> str:
    code = process.exitcode
    if code is not None and code < 0:
        return f"died of {signal.Signals(-code).name}"
    return f"left with exit code {code}; its output may say why"


def _end_all(running: dict[int, Any]) -> None:
    for entry in running.values():
        entry.process.kill()
    for entry in running.values():
        entry.end()
    running.clear()
