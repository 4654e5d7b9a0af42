"""Rows to Markdown: the tables of docs/benchmarks.md. A section is a function of rows, and a line below."""

from __future__ import annotations

from collections.abc import Sequence

from bench import compared, limits, machine
from bench.cases import cases
from bench.run import Row
from bench.units import digits, grid, seconds, size

BEGIN = "<!-- tables: begin. Written by `python -m bench`, not by hand. -->"
END = "<!-- tables: end -->"


def page(rows: Sequence[Row]) -> str:
    """All sections for which there are rows."""
    return "\n\n".join(filter(None, (section(rows) for section in _SECTIONS)))


def put(document: str, tables: str) -> str:
    """Replaces what is between the markers. Raises: ValueError if one is missing."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document lacks a marker; it needs the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}"


def _machine(rows: Sequence[Row]) -> str:
    env = next((row for row in rows if row["part"] == "environment"), None)
    if env is None:
        return ""
    body = [(name.replace("_", " "), str(value)) for name, value in env.items() if name != "part"]
    warning = machine.warning(env)
    bold = f"\n\n**{warning[0].upper()}{warning[1:]}.**" if warning else ""
    return f"## The machine\n\n{grid(('machine', ''), body)}{bold}"


def _training(rows: Sequence[Row]) -> str:
    body = [_step(row) for case in cases(rows, "training step") for row in case.sides.values()]
    head = ("side", "ranks", "gradients", "median", "p99", "mean", "CPU per step, all ranks", "steps")
    return f"## A training step\n\n{grid(head, body)}" if body else ""


def _step(row: Row) -> Sequence[str]:
    spans = (seconds(row[name]) for name in ("median_s", "p99_s", "mean_s", "cpu_s_per_call"))
    return (row["side"], str(row["ranks"]), size(row["bytes"]), *spans, str(row["calls"]))


def _schedules(rows: Sequence[Row]) -> str:
    found = [row for row in rows if row["part"] == "schedule"]
    body = [(row["side"], str(row["ranks"]), str(row["sends"]), seconds(row["least_s"])) for row in found]
    head = ("builder of all_reduce", "ranks", "sends", "built and checked in")
    return f"## Schedules\n\n{grid(head, body)}" if body else ""


def _simulator(rows: Sequence[Row]) -> str:
    body = [_simulated(row) for row in rows if row["part"] == "simulator"]
    head = ("all_reduce of 100 MB", "ranks", "virtual time", "took", "events", "million events per second")
    return f"## The simulator\n\n{grid(head, body)}" if body else ""


def _simulated(row: Row) -> Sequence[str]:
    rate = digits(row["events"] / row["least_s"] / 1e6)
    spans = (seconds(row["virtual_s"]), seconds(row["least_s"]))
    return (row["side"], str(row["ranks"]), *spans, str(row["events"]), rate)


_OTHERS = ("reduce_scatter_tensor", "all_gather_into_tensor", "broadcast", "all_to_all_single")
_SECTIONS = (
    _machine,
    compared.goals,
    compared.beside("All-reduce on one host", "all_reduce"),
    compared.in_a_row,
    limits.distance,
    limits.bandwidths,
    compared.cpu,
    compared.beside("Other collectives on one host", *_OTHERS),
    compared.beside("Over TCP", "all_reduce over TCP"),
    _training,
    _schedules,
    _simulator,
)
