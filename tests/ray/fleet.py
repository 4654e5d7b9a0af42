"""Processes that share objects, forked, without Ray: each runs what it is sent over a pipe."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any

from tweed.ray.objects import Objects, Ref

PATIENCE_S = 20.0
_WORD = 2**64 - 1
_forks = multiprocessing.get_context("fork")


def _serve(calls: Any, wire_only: bool) -> None:
    """A process: runs what it is sent, with its objects, until the pipe closes."""
    with Objects(wire_only=wire_only) as objects:
        calls.send(objects.descriptor)
        while True:
            try:
                fn, args = calls.recv()
            except EOFError:
                return
            calls.send(fn(objects, *args))


def _meet(objects: Objects, descriptors: list[bytes]) -> dict[bytes, str]:
    return objects.meet(descriptors)


def _mix(number: int) -> int:
    """As in `crates/rng`."""
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    number = (number ^ number >> 27) * 0x94D049BB133111EB & _WORD
    return number ^ number >> 31


class Fleet:
    """Processes that have met each other, and pipes to them; so many of them share no memory."""

    def __init__(self, count: int, wire_only: int = 0) -> None:
        self.wire_only = wire_only
        self.processes: list[Any] = [None] * count
        self.pipes: list[Any] = [None] * count
        self.descriptors: dict[int, bytes] = {}
        for rank in range(count):  # all before any has threads here
            self._fork(rank)
        for rank in range(count):
            self.descriptors[rank] = self.end(rank)
            self._join(rank)

    def shard(self, ref: Ref) -> int:
        """The process with the directory's entry of an object, as in `crates/proto/src/objects/shards.rs`."""
        folded = _mix(ref.id >> 64) ^ ref.id & _WORD
        keys = {rank: bytes.fromhex(json.loads(known)["key"]) for rank, known in self.descriptors.items()}
        ids = {rank: int.from_bytes(key[:8], "little") for rank, key in keys.items()}
        return max(ids, key=lambda rank: _mix(folded ^ _mix(ids[rank])))

    def ref_at(self, rank: int | None) -> Ref:
        """A new id, whose shard is this process; None: any."""
        refs = (Ref.new() for _ in range(1000))
        return next(ref for ref in refs if rank is None or self.shard(ref) == rank)

    def _fork(self, rank: int) -> None:
        self.pipes[rank], theirs = _forks.Pipe()
        args = (theirs, rank < self.wire_only)
        self.processes[rank] = _forks.Process(target=_serve, args=args, daemon=True)
        self.processes[rank].start()
        theirs.close()  # so that a dead process is heard of

    def _join(self, rank: int) -> None:
        assert self.on(rank, _meet, list(self.descriptors.values())) == {}

    def replace(self, *ranks: int) -> None:
        """New processes take the places of those that were killed. Nothing here may have threads."""
        for rank in ranks:
            self.pipes[rank].close()
            self.processes[rank].join()
            del self.descriptors[rank]
        for rank in ranks:
            self._fork(rank)
            self.descriptors[rank] = self.end(rank)
            self._join(rank)

    def start(self, rank: int, fn: Callable[..., Any], *args: Any) -> None:
        """A process begins to run something."""
        self.pipes[rank].send((fn, args))

    def end(self, rank: int) -> Any:
        """What came of it."""
        assert self.pipes[rank].poll(PATIENCE_S), f"process {rank} does not answer"
        return self.pipes[rank].recv()

    def on(self, rank: int, fn: Callable[..., Any], *args: Any) -> Any:
        """Runs something in a process."""
        self.start(rank, fn, *args)
        return self.end(rank)

    def kill(self, rank: int) -> None:
        """SIGKILL."""
        os.kill(self.processes[rank].pid or 0, signal.SIGKILL)
        self.processes[rank].join()

    def close(self) -> None:
        """All end."""
        for process in self.processes:
            process.kill()
            process.join()
