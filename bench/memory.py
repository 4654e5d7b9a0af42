"""What memory can do with the same number of processes, and what an all-reduce asks of it."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from bench import example
from bench.run import Row
from tweed.experiments.benchmark import Contender

#: Buffers of the size S that a probe reads and writes in one call.
PASSES = {"read two": 2, "copy": 2, "add in place": 3}
_FOLDS = "float32 SUM"


def probes(size_bytes: int) -> list[Contender]:
    """Plain work on two buffers of this process alone; all ranks do it at the same time."""
    x, y = (torch.empty(size_bytes // 4).fill_(0) for _ in range(2))
    calls = {
        "read two": lambda: torch.dot(x, y),
        "copy": lambda: y.copy_(x),
        "add in place": lambda: y.add_(x),
    }
    return [Contender(side, calls[side]) for side in PASSES]


def least_bytes(side: str, ranks: int, size_bytes: int) -> float:
    """Bytes that all ranks together must read and write in an all-reduce.

    In shared tensors: each buffer is read once and written once, `2 N S`. In ordinary ones, which no other
    process can touch, each rank also puts all but its own part into shared memory, and the sums come back
    through it: per rank a copy of `(N-1)/N S` in, a sum of N parts of `S/N` with its result written twice,
    and a copy of `(N-1)/N S` out; together `(5 - 2/N) N S`.
    """
    passes = 2.0 if side == "tweed.empty" else 5 - 2 / ranks
    return passes * ranks * size_bytes


def bandwidth(probe: Row) -> float:
    """Bytes per second, all ranks together, of a row of `probes`."""
    moved: float = PASSES[probe["side"]] * probe["ranks"] * probe["bytes"]
    return moved / float(probe["median_s"])


def kernels() -> Iterator[Row]:
    """What one core does with the engine's own sums: the example of crates/kernels, built if need be."""
    yield from rows(example.output("bandwidth"))


def rows(output: str) -> Iterator[Row]:
    """The rows about limits and about sums of float32."""
    for figure in example.figures(output):
        if figure.of.startswith("limits") or figure.of == _FOLDS:
            yield figure.row("kernels")
