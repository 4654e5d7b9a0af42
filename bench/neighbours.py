"""Objects of four processes of this host: those that map each other's memory, beside the same over loopback.

Every process takes part twice, with memory shared and over the wire alone, and the two take turns. Whoever
gets an object reads all of it; times are those of the process that is last.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import numpy as np

from bench.run import Row, quantile
from bench.units import grid, seconds, size
from tweed.ray.objects import Objects, Ref

PART, WIRE = "neighbours", "over loopback"
SIZE = 4
FULL, QUICK = 20, 2
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
        spawns = multiprocessing.get_context("spawn")
        pairs = [spawns.Pipe() for _ in range(SIZE)]
        self.processes = [spawns.Process(target=_serve, args=(end,), daemon=True) for _, end in pairs]
        self.pipes = [pipe for pipe, _ in pairs]
        for process in self.processes:
            process.start()
        known = [pipe.recv() for pipe in self.pipes]
        for rank in range(SIZE):
            for wire in (0, 1):
                self.run(wire, {rank: (meet, [of[wire] for of in known[:rank]])})

    def close(self) -> None:
        """Ends the processes, which were told nothing that has not been answered."""
        for process in self.processes:
            process.terminate()
            process.join()

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


def rows(rounds: int) -> Iterator[Row]:
    """A row for each size and kind, mapped and over the wire."""
    four = Four()
    try:
        for nbytes in BYTES:
            spans: list[list[list[float]]] = [[], []]
            for turn in range(2 * (rounds + 2)):
                spans[turn % 2].append(four.round(turn % 2, nbytes // 4))
            yield from _compared(nbytes, spans)
    finally:
        four.close()


def _compared(nbytes: int, spans: list[list[list[float]]]) -> Iterator[Row]:
    shared, wire = (zip(*of[2:], strict=True) for of in spans)
    for kind, here, there in zip(KINDS, shared, wire, strict=True):
        for side, found in ((kind, sorted(here)), (f"{kind}, {WIRE}", sorted(there))):
            figures = {"median_s": median(found), "p99_s": quantile(found, 0.99), "calls": len(found)}
            yield {"part": PART, "ranks": SIZE, "bytes": nbytes, "side": side, **figures}


def table(rows: Sequence[Row]) -> str:
    """Mapped memory beside loopback; bold where it is slower."""
    found = {(row["bytes"], row["side"]): row for row in rows if row["part"] == PART}
    body = []
    for (nbytes, kind), row in found.items():
        if other := found.get((nbytes, f"{kind}, {WIRE}")):
            ratio = other["median_s"] / row["median_s"]
            cells = (f"{seconds(of['median_s'])} / {seconds(of['p99_s'])}" for of in (row, other))
            shown = f"{ratio:.2f}x" if ratio >= 1 else f"**{ratio:.2f}x**"
            body.append((kind, size(nbytes), *cells, shown, str(row["calls"])))
    head = ("four processes", "size", "mapped: median / p99", WIRE, "speed, times that", "rounds")
    return f"## Objects of one host\n\n{grid(head, body)}" if body else ""
