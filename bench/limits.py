"""Tables of what memory can do, and of how far from it an all-reduce is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.cases import OURS, Case, cases
from bench.memory import PASSES, bandwidth, least_bytes
from bench.run import Row
from bench.units import digits, grid, seconds, size


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
