"""What memory can do with the same number of processes, what an all-reduce asks of it, and tables of both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from bench import example
from bench.cases import OURS, Case, cases
from bench.run import Row
from bench.units import digits, grid, seconds, size
from tweed.systems.harness.benchmark import Contender

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


def distance(rows: Sequence[Row]) -> str:
    """Where memory was probed beside an all-reduce: bytes at least, over bandwidth, against its time."""
    memory = {(case.ranks, case.size_bytes): case for case in cases(rows, "memory")}
    pairs = [(case, memory.get((case.ranks, case.size_bytes))) for case in cases(rows, "all_reduce")]
    body = [line for case, probes in pairs if probes for line in _distances(case, probes)]
    head = ("ranks", "size", "tensors", "bytes at least", "time at full bandwidth", "measured", "share")
    return f"## Distance to the limit of memory bandwidth\n\n{grid(head, body)}" if body else ""


def _distances(case: Case, probes: Case) -> Iterator[Sequence[str]]:
    """The best probe sets the limit: whatever mix of reads and writes suits this memory most."""
    full = max(bandwidth(row) for row in probes.sides.values())
    for side, tensors in OURS.items():
        least, took = least_bytes(side, case.ranks, case.size_bytes), case.sides[side]["median_s"]
        place = (str(case.ranks), size(case.size_bytes), tensors)
        yield (*place, f"{_gb(least)} GB", seconds(least / full), seconds(took), f"{least / full / took:.0%}")


def bandwidths(rows: Sequence[Row]) -> str:
    """All ranks together, by number of ranks; and one core alone with the engine's own kernels."""
    found = cases(rows, "memory")
    body = [(str(case.ranks), *(_gb(bandwidth(case.sides[side])) for side in PASSES)) for case in found]
    table = grid(("ranks", *(f"{side}, GB/s" for side in PASSES)), body)
    parts = [f"All ranks at once, together:\n\n{table}" if body else "", _kernels(rows)]
    return "\n\n".join(["## Memory bandwidth", *filter(None, parts)]) if any(parts) else ""


def _kernels(rows: Sequence[Row]) -> str:
    body = [(row["of"], row["side"], digits(row["gb_per_s"])) for row in rows if row["part"] == "kernels"]
    return (
        f"One core alone, the engine's own kernels:\n\n{grid(('of', 'work', 'GB/s'), body)}" if body else ""
    )


def _gb(value: float) -> str:
    return digits(value / 1e9)
