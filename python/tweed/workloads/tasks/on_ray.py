"""Workers as actors of a Ray cluster: they are started, hear, answer, die, and are ended.

    launcher                                          actor
    the function's name, and shared: here if short,
    else the ref of an object of `tweed.ray`      ->  begin
                                                  <-  READY, or BROKEN with a traceback
    copy, payload                                 ->  run
                                                  <-  RETURNED, copy, result; or RAISED, copy, traceback
    a call that ends with the process             ->  live

Payloads and answers are bytes in the form of `worker`, which Ray carries as they are. Nothing here imports
Ray before workers are started.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent import futures
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tweed.errors import UsageError
from tweed.forkserver import server
from tweed.ray.installed import require_ray
from tweed.workloads.tasks import worker
from tweed.workloads.tasks.events import Event, Lost

if TYPE_CHECKING:
    from tweed.ray.objects import Ref

#: A shorter first message goes with each call: objects of less lie in no memory that neighbours share.
_INLINE_BYTES = 1 << 16
#: Seconds in which an actor finds what is shared, and in which actors that were killed are known to be dead.
_FETCH_S, _EXIT_S = 60.0, 10.0
#: Room for objects in a process, as `tweed.ray.open_objects` has it.
_ROOM_BYTES = 1 << 30


@dataclass(slots=True, eq=False)
class _Actor:
    """A worker's actor; `life` is done when its process has ended."""

    number: int
    handle: Any
    life: futures.Future[Any]


class RayWorkers:
    """Workers on the Ray cluster that this process is connected to, spread over its nodes.

    A context manager, for one map of tasks after the other: leaving it ends all of them.

    Args:
      count: how many there are. Those for which the cluster has no room start when it has.
      num_cpus: logical CPUs of its node that each takes.
      resources: what else each takes, as `ray.remote` has it.

    Each has the environment of its node's raylet and one thread for torch, and prints where Ray lets it.

    Raises: UsageError for fewer than one.
    Cost: seconds per actor, in which Ray starts a process that imports torch. What is shared crosses to each
      node once, if it has more than 64 KiB.

    Example:
      >>> with RayWorkers(8, num_cpus=0.5) as workers:
      ...     workers.count
      8
    """

    def __init__(
        self, count: int, num_cpus: float = 1.0, resources: Mapping[str, float] | None = None
    ) -> None:
        if count < 1:
            raise UsageError(f"{count} workers cannot be: give 1 or more")
        self.count = count
        self._needs = {"num_cpus": num_cpus, "resources": resources}
        self._map, self._payloads = 0, list[bytearray]()
        self._setup: bytes | Ref = b""
        self._running: dict[int, _Actor] = {}
        self._done: queue.SimpleQueue[tuple[_Actor, futures.Future[Any]]] = queue.SimpleQueue()

    def check(self, name: str) -> None:
        """Raises UsageError if no worker can be started, or none would find the function of this name."""
        require_ray()
        import ray

        if not ray.is_initialized():
            raise UsageError("workers on Ray need a cluster: call ray.init() first")
        if name.startswith("__main__:"):
            raise UsageError(
                f"{name.removeprefix('__main__:')} is defined in the main module, which processes of Ray "
                "do not import: define it in a module of its own"
            )

    def begin(self, setup: bytearray, payloads: list[bytearray]) -> None:
        """A map begins: each worker gets `setup`, see `worker`, and says that it is ready for this one."""
        self._map += 1
        self._setup = bytes(setup) if len(setup) < _INLINE_BYTES else _put(setup)
        self._payloads = payloads
        for number in range(self.count):
            if number in self._running:
                self._prepare(self._running[number])
            else:
                self._start(number)

    def finish(self, busy: Iterable[int]) -> None:
        """The map is over: kills the actors of workers that still run a task of it. Does not wait."""
        for number in busy:
            if entry := self._running.pop(number, None):
                _kill(entry.handle)
        self._payloads = []
        self._forget_setup()

    def run(self, number: int, copy: int, task: int) -> None:
        """Gives a worker a copy of a task. Does not wait; a worker that has ended gets nothing."""
        if entry := self._running.get(number):
            self._hear(entry, entry.handle.run.remote(copy, bytes(self._payloads[task])).future())

    def replace(self, number: int) -> None:
        """Kills the worker's actor, if it lives, and starts another one."""
        if entry := self._running.pop(number, None):
            _kill(entry.handle)
        self._start(number)

    def wait(self, timeout_s: float | None) -> list[Event]:
        """What has happened, after waiting for something for `timeout_s` at most (None: without limit)."""
        try:
            done = [self._done.get(timeout=timeout_s)]
        except queue.Empty:
            return []
        while not self._done.empty():
            done.append(self._done.get())
        return [event for entry, answer in done for event in self._heard(entry, answer)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for entry in self._running.values():
            _kill(entry.handle)
        futures.wait([entry.life for entry in self._running.values()], _EXIT_S)
        self._running.clear()
        self._forget_setup()

    def _forget_setup(self) -> None:
        if not isinstance(self._setup, bytes):
            from tweed.ray import delete

            delete(self._setup)
        self._setup = b""

    def _start(self, number: int) -> None:
        import ray

        remote: Any = ray.remote
        made = remote(
            scheduling_strategy="SPREAD",
            concurrency_groups={"life": 1},
            runtime_env={"env_vars": server.ONE_THREAD},
            **self._needs,
        )(TaskActor)
        handle = made.remote()
        life = handle.live.options(concurrency_group="life").remote().future()
        entry = self._running[number] = _Actor(number, handle, life)
        self._hear(entry, life)
        self._prepare(entry)

    def _prepare(self, entry: _Actor) -> None:
        self._hear(entry, entry.handle.begin.remote(self._map, self._setup).future())

    def _hear(self, entry: _Actor, answer: futures.Future[Any]) -> None:
        """`wait` is told when there is an answer. A thread of Ray's does so."""
        answer.add_done_callback(lambda answer: self._done.put((entry, answer)))

    def _heard(self, entry: _Actor, answer: futures.Future[Any]) -> Iterator[Event]:
        """What an answer means; nothing if its actor was replaced or lost before."""
        if self._running.get(entry.number) is not entry:
            return
        if error := answer.exception():
            event: Event | None = Lost(entry.number, f"ended, and Ray says: {str(error).strip()}")
        else:
            event = worker.heard(entry.number, answer.result(), self._map)
        if isinstance(event, Lost):
            del self._running[entry.number]
            _kill(entry.handle)
        if event is not None:
            yield event


class TaskActor:
    """An actor that runs tasks: a worker's side of the messages above."""

    def begin(self, number: int, setup: bytes | Ref) -> bytes:
        """Takes the function of a map and what is shared. Returns what the launcher is told."""
        self._run, message = worker.begun(number, setup if isinstance(setup, bytes) else _got(setup))
        return b"".join(message)

    def run(self, copy: int, payload: bytes) -> bytes:
        """Runs a copy of a task. Returns what the launcher is told."""
        assert self._run is not None  # a launcher whose worker is broken gives it no task
        return b"".join(worker.answer(self._run, copy, payload))

    def live(self) -> None:
        """Never returns: the launcher hears so that the process has ended, also while no task runs."""
        threading.Event().wait()


def _kill(handle: Any) -> None:
    import ray

    ray.kill(handle)


def _put(setup: bytearray) -> Ref:
    from tweed.ray import open_objects

    return open_objects(max(_ROOM_BYTES, 2 * len(setup))).put(np.frombuffer(setup, np.uint8))


def _got(ref: Ref) -> memoryview:
    from tweed.ray import get

    return memoryview(get(ref).result(_FETCH_S))
