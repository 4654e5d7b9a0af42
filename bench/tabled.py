"""Tables of training, memory, schedules and the simulator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench import admission
from bench.cases import Case, cases
from bench.compared import both
from bench.run import Row
from bench.training import PARTS
from bench.units import digits, grid, seconds, size


def training(rows: Sequence[Row]) -> str:
    """Every task and side; what tweed and attach make of a step."""
    found = cases(rows, *PARTS)
    head = (
        "task",
        "network",
        "ranks",
        "gradients",
        "side",
        "median / p99",
        "mean",
        "CPU per step, all ranks",
        "steps",
    )
    steps = grid(head, [line for case in found for line in _steps(case)])
    head = (
        "task",
        "network",
        "DDP: tweed, times Gloo",
        "attach over DDP, on Gloo",
        "attach over DDP, on tweed",
    )
    overheads = grid(head, map(_overheads, found))
    return f"## A training step\n\n{overheads}\n\n{steps}" if found else ""


def _place(case: Case) -> tuple[str, str]:
    return (case.part.rpartition(" ")[2], case.network or "this host")


def _steps(case: Case) -> Iterator[Sequence[str]]:
    for side, row in case.sides.items():
        spans = (both(row), seconds(row["mean_s"]), seconds(row["cpu_s_per_call"]))
        yield (*_place(case), str(case.ranks), size(case.size_bytes), side, *spans, str(row["calls"]))


def _overheads(case: Case) -> Sequence[str]:
    """Bold where tweed is slower."""
    factor = case.times("DDP on tweed", "DDP on Gloo")
    overheads = (1 / case.times(f"attach on {group}", f"DDP on {group}") - 1 for group in ("Gloo", "tweed"))
    shown = (f"{over:+.1%}" if over <= 0 else f"**{over:+.1%}**" for over in overheads)
    return (*_place(case), f"{digits(factor)}x" if factor >= 1 else f"**{digits(factor)}x**", *shown)


def memory(rows: Sequence[Row]) -> str:
    """Extra memory of the rank that takes most, in bytes and in copies of the tensor."""
    body = [
        (row["side"], str(row["ranks"]), size(row["bytes"]), *_grown(row))
        for row in rows
        if row["part"] == "extra memory"
    ]
    head = ("side", "ranks", "size", "proportional", "copies", "resident", "copies")
    return f"## Extra memory of an all-reduce, per rank\n\n{grid(head, body)}" if body else ""


def copies(row: Row, kind: str) -> float:
    """Extra memory of the rank that takes most, over the size of the tensor."""
    return float(max(row[kind]) / row["bytes"])


def _grown(row: Row) -> Iterator[str]:
    for kind in ("proportional_bytes", "resident_bytes"):
        yield f"{max(row[kind]) / (1 << 20):.1f} MB"
        yield f"{copies(row, kind):.2f}"


def strangers(rows: Sequence[Row]) -> str:
    """A step with strangers at the doors, over one without; bold where it takes more than a tenth longer."""
    body = [_attacked(row) for row in rows if row["part"] == admission.PART]
    head = ("strangers", "calls", "refused", "quiet step", "attacked step", "by blocks", "median", "p99")
    head += ("CPU of the ranks", "memory", "memory, quiet", "steps")
    return f"## Strangers at the doors of a run\n\n{grid(head, body)}" if body else ""


def _attacked(row: Row) -> Iterator[str]:
    yield from (row["side"], f"{row['callers']}, {row['calls_per_s']:g} a second")
    yield ", ".join(f"{count} {reason}" for reason, count in row["refused"].items())
    for side in ("quiet", "attacked"):
        yield f"{seconds(row[f'{side}_median_s'])} / {seconds(row[f'{side}_p99_s'])}"
    figures = ("median_s", "p99_s", "cpu_s")
    ratios = (row[f"attacked_{figure}"] / row[f"quiet_{figure}"] for figure in figures)
    for ratio in (row["ratio"], *ratios):
        yield f"{ratio:.2f}x" if ratio <= admission.GOAL else f"**{ratio:.2f}x**"
    yield from (f"{row[name] / (1 << 20):.1f} MB" for name in ("grown_bytes", "quiet_grown_bytes"))
    yield f"{row['steps']} / {row['attacked_steps']}"


def schedules(rows: Sequence[Row]) -> str:
    """Seconds to build, and to build and check, by builder."""
    body = [_schedule(row) for row in rows if row["part"] == "schedule"]
    head = ("builder of all_reduce", "ranks", "sends", "builder alone", "built and checked in")
    return f"## Schedules\n\n{grid(head, body)}" if body else ""


def _schedule(row: Row) -> Sequence[str]:
    spans = (seconds(row["build_s"]), seconds(row["least_s"]))
    return (row["side"], str(row["ranks"]), str(row["sends"]), *spans)


def simulator(rows: Sequence[Row]) -> str:
    """Events per second."""
    body = [_simulated(row) for row in rows if row["part"] == "simulator"]
    head = ("all_reduce of 100 MB", "ranks", "virtual time", "took", "events", "million events per second")
    return f"## The simulator\n\n{grid(head, body)}" if body else ""


def _simulated(row: Row) -> Sequence[str]:
    rate = digits(row["events"] / row["least_s"] / 1e6)
    spans = (seconds(row["virtual_s"]), seconds(row["least_s"]))
    return (row["side"], str(row["ranks"]), *spans, str(row["events"]), rate)
