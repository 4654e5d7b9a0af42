"""Objects of four processes of this host: those that map each other's memory, beside the same over loopback.

    python -m bench.neighbours [ROUNDS]

Every process takes part twice, with memory shared and over the wire alone, and the two take turns. Whoever
gets an object reads all of it; times are those of the process that is last.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from statistics import median
from typing import Any

import numpy as np

from tweed.ray.objects import Objects, Ref

SIZE, ROUNDS = 4, 20
BYTES = (16_800_000, 1_000_000)
KINDS = ("put", "broadcast", "sum + broadcast")


def _serve(calls: Any) -> None:
    """A process: runs what it is sent, with its two parts, until the pipe closes."""
    both = [Objects(wire_only=False), Objects(wire_only=True)]
    calls.send([objects.descriptor for objects in both])
    while True:
        try:
            fn, wire, args = calls.recv()
        except EOFError:
            return
        calls.send((fn(both[wire], *args), time.monotonic()))


def meet(objects: Objects, descriptors: list[bytes]) -> None:
    """Meets all others."""
    assert objects.meet(descriptors) == {}


def put(objects: Objects, ref: Ref, numel: int) -> float:
    """Puts ones. Returns the seconds of that alone."""
    array = np.ones(numel, np.float32)
    began = time.monotonic()
    objects.put(array, ref)
    return time.monotonic() - began


def read(objects: Objects, ref: Ref) -> None:
    """Gets an object, and reads it."""
    objects.get(ref, timeout=30).result().max()


def add(objects: Objects, refs: list[Ref], target: Ref) -> None:
    """Sums, and reads the sum."""
    assert objects.reduce(refs, target=target, timeout=30).result().array.max() == len(refs)


def delete(objects: Objects, refs: list[Ref]) -> None:
    """Takes all of them away, and waits until this process has let go of them."""
    for ref in refs:
        objects.delete(ref)
    while objects.used:
        time.sleep(0.001)


class Four:
    """The processes, and pipes to them."""

    def __init__(self) -> None:
        forks = multiprocessing.get_context("fork")
        pairs = [forks.Pipe() for _ in range(SIZE)]
        self.processes = [forks.Process(target=_serve, args=(end,), daemon=True) for _, end in pairs]
        self.pipes = [pipe for pipe, _ in pairs]
        for process in self.processes:
            process.start()
        known = [pipe.recv() for pipe in self.pipes]
        for rank in range(SIZE):
            for wire in (0, 1):
                self.run(wire, {rank: (meet, [of[wire] for of in known[:rank]])})

    def run(self, wire: int, calls: dict[int, tuple[Any, ...]]) -> tuple[list[Any], float]:
        """Each of these runs something at once. Returns what came of it, and the seconds of the last."""
        began = time.monotonic()
        for rank, (fn, *args) in calls.items():
            self.pipes[rank].send((fn, wire, args))
        ends = [self.pipes[rank].recv() for rank in calls]
        return [end[0] for end in ends], max(end[1] for end in ends) - began

    def round(self, wire: int, numel: int) -> list[float]:
        """Seconds of each kind."""
        refs, target = [Ref.new() for _ in range(SIZE)], Ref.new()
        puts, _ = self.run(wire, {rank: (put, refs[rank], numel) for rank in range(1)})
        _, broadcast_s = self.run(wire, dict.fromkeys(range(1, SIZE), (read, refs[0])))
        self.run(wire, {rank: (put, refs[rank], numel) for rank in range(1, SIZE)})
        others = dict.fromkeys(range(1, SIZE), (read, target))
        _, sum_s = self.run(wire, {0: (add, refs, target), **others})
        self.run(wire, {0: (delete, [*refs, target])})
        self.run(wire, {rank: (delete, []) for rank in range(1, SIZE)})
        return [puts[0], broadcast_s, sum_s]


def main(rounds: int = ROUNDS) -> None:
    """Measures, and prints a table."""
    four = Four()
    for nbytes in BYTES:
        seconds: list[list[list[float]]] = [[], []]
        for turn in range(2 * (rounds + 2)):
            seconds[turn % 2].append(four.round(turn % 2, nbytes // 4))
        shared, wire = (zip(*of[2:], strict=True) for of in seconds)
        for kind, here, there in zip(KINDS, shared, wire, strict=True):
            ratio = median(there) / median(here)
            print(
                f"{nbytes / 1e6:5.1f} MB  {kind:16} shared {median(here) * 1e3:7.2f} ms  "
                f"wire {median(there) * 1e3:7.2f} ms  {ratio:.2f}x"
            )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
