"""Tables that set tweed beside its peers. A section maps all rows to Markdown; to nothing if it has none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from bench.cases import OURS, PEERS, SIDES, Case, cases
from bench.run import Row
from bench.units import digits, grid, seconds, size, times
from tweed.systems.harness.benchmark import LOCKSTEP_BYTES


def beside(title: str, *parts: str) -> Callable[[Sequence[Row]], str]:
    """A section with times of all sides for these parts, and how often ours fit into the peers'."""

    def section(rows: Sequence[Row]) -> str:
        found = cases(rows, *parts)
        sides = _there(found)
        head = ("collective", "ranks", "size", *map(_name, sides), *_factors_head(sides), "calls")
        return f"## {title}\n\n{grid(head, [_times_of(case, sides) for case in found])}" if found else ""

    return section


def _there(found: Iterable[Case]) -> list[str]:
    """The sides that have a row in any of these cases, in the order of columns."""
    return [side for side in SIDES if any(side in case.sides for case in found)]


def _name(side: str) -> str:
    return PEERS.get(side, side)


def _pairs(sides: Sequence[str]) -> list[tuple[str, str]]:
    return [(ours, peer) for ours in sides if ours in OURS for peer in sides if peer in PEERS]


def _factors_head(sides: Sequence[str]) -> list[str]:
    return [f"{ours}, times {PEERS[peer]}" for ours, peer in _pairs(sides)]


def _place(case: Case) -> list[str]:
    return [case.part, str(case.ranks), size(case.size_bytes)]


def _times_of(case: Case, sides: Sequence[str]) -> list[str]:
    rows = [case.sides[side] for side in sides]
    return [
        *_place(case),
        *(both(row) for row in rows),
        *(times(case.sides[ours]["median_s"], case.sides[peer]["median_s"]) for ours, peer in _pairs(sides)),
        " / ".join(str(row["calls"]) for row in rows),
    ]


def both(row: Row) -> str:
    """Median and p99, such as `135 µs / 412 µs`."""
    return f"{seconds(row['median_s'])} / {seconds(row['p99_s'])}"


def in_a_row(rows: Sequence[Row]) -> str:
    """Seconds that calls in a row take, per call; less than a call, as ranks need not be in the same one."""
    found = [case for case in cases(rows, "all_reduce") if case.size_bytes < LOCKSTEP_BYTES]
    sides = _there(found)
    head = ("collective", "ranks", "size", *map(_name, sides), *_factors_head(sides))
    body = [_in_a_row(case, sides) for case in found]
    return f"## Calls in a row, time per call\n\n{grid(head, body)}" if body else ""


def _in_a_row(case: Case, sides: Sequence[str]) -> list[str]:
    took = {side: case.sides[side]["in_a_row_s"] for side in sides}
    factors = (times(took[ours], took[peer]) for ours, peer in _pairs(sides))
    return [*_place(case), *map(seconds, took.values()), *factors]


def cpu(*parts: str) -> Callable[[Sequence[Row]], str]:
    """A section with CPU seconds of all ranks per GB of all buffers together."""

    def section(rows: Sequence[Row]) -> str:
        found = cases(rows, *parts)
        sides = _there(found)
        head = ("collective", "network", "ranks", "size", *map(_name, sides))
        body = [_cpu_of(case, sides) for case in found]
        return f"## CPU seconds per GB\n\n{grid(head, body)}" if body else ""

    return section


def _cpu_of(case: Case, sides: Sequence[str]) -> list[str]:
    moved_gb = case.ranks * case.size_bytes / 1e9
    name, *place = _place(case)
    found = map(case.sides.get, sides)
    spent = (digits(row["cpu_s_per_call"] / moved_gb) if row else "" for row in found)
    return [name, case.network or "this host", *place, *spent]


def openmpi(rows: Sequence[Row]) -> str:
    """What OpenMPI was told."""
    body = [
        (row["version"], str(row["ranks"]), row["pml"], row["btl"], row["smsc"], _waiting(row))
        for row in rows
        if row["part"] == "openmpi"
    ]
    head = ("OpenMPI", "ranks", "`pml`", "`btl`", "`smsc`", "ranks that wait")
    return f"### How OpenMPI ran\n\n{grid(head, body)}" if body else ""


def _waiting(row: Row) -> str:
    return "spin, and give way (`mpi_yield_when_idle`)" if row["mpi_yield_when_idle"] == "1" else "spin"
