"""Rows to Markdown: the tables of docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from bench import machine
from bench.memory import PASSES, bandwidth, least_bytes
from bench.run import Row
from bench.units import digits, grid, seconds, size, times

BEGIN = "<!-- tables: begin. Written by `python -m bench`, not by hand. -->"
END = "<!-- tables: end -->"
_OURS = ("tweed", "tweed.empty")
_TENSORS = {"tweed": "ordinary", "tweed.empty": "`tweed.empty`"}


class Goal(NamedTuple):
    """What the first version set out to reach: at least so many times as fast as Gloo."""

    size_bytes: int
    ranks: int
    side: str
    factor: float


GOALS = (
    Goal(100 << 20, 2, "tweed", 4.0),
    Goal(100 << 20, 4, "tweed", 4.0),
    Goal(100 << 20, 8, "tweed", 3.5),
    Goal(100 << 20, 2, "tweed.empty", 9.0),
    Goal(100 << 20, 4, "tweed.empty", 9.0),
    Goal(100 << 20, 8, "tweed.empty", 7.0),
    Goal(4 << 10, 4, "tweed", 30.0),
    Goal(4 << 10, 2, "tweed", 1.0),
)


class Case(NamedTuple):
    """The same work, done by several sides."""

    part: str
    ranks: int
    size_bytes: int
    sides: dict[str, Row]


def cases(rows: Iterable[Row], part: str) -> list[Case]:
    """The timed rows of a part, side by side."""
    found: dict[tuple[str, int, int], Case] = {}
    for row in rows:
        if row["part"] == part:
            key = (row["part"], row["ranks"], row["bytes"])
            found.setdefault(key, Case(*key, {})).sides[row["side"]] = row
    return list(found.values())


def page(rows: Sequence[Row]) -> str:
    """All tables for which there are rows."""
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
    warning = machine.warning(env)
    body = [(name.replace("_", " "), str(value)) for name, value in env.items() if name != "part"]
    table = grid(("machine", ""), body)
    return f"## The machine\n\n{table}" + (f"\n\n**{warning[0].upper()}{warning[1:]}.**" if warning else "")


def _goals(rows: Sequence[Row]) -> str:
    found = {(case.size_bytes, case.ranks): case for case in cases(rows, "all_reduce")}
    body = [_goal(goal, found[goal[:2]]) for goal in GOALS if goal[:2] in found]
    head = ("all_reduce of", "ranks", "tensors", "goal, times Gloo", "measured", "reached")
    return f"## Goals\n\n{grid(head, body)}" if body else ""


def _goal(goal: Goal, case: Case) -> Sequence[str]:
    factor = case.sides["gloo"]["median_s"] / case.sides[goal.side]["median_s"]
    place = (size(goal.size_bytes), str(goal.ranks), _TENSORS[goal.side])
    return (*place, f"{goal.factor:g}x", f"{digits(factor)}x", "yes" if factor >= goal.factor else "**no**")


def _beside(title: str, parts: Sequence[str]) -> Callable[[Sequence[Row]], str]:
    """A section with Gloo's and our times for some collectives."""
    pairs = [f"{side} {what}" for side in _OURS for what in ("median", "p99", "times Gloo")]
    head = ("collective", "ranks", "size", "Gloo median", "Gloo p99", *pairs, "calls")

    def section(rows: Sequence[Row]) -> str:
        body = [_times_of(case) for part in parts for case in cases(rows, part)]
        return f"## {title}\n\n{grid(head, body)}" if body else ""

    return section


def _times_of(case: Case) -> list[str]:
    gloo = case.sides["gloo"]
    cells = [case.part, str(case.ranks), size(case.size_bytes)]
    cells += [seconds(gloo["median_s"]), seconds(gloo["p99_s"])]
    for ours in map(case.sides.get, _OURS):
        cells += _ours(ours, gloo) if ours else ["", "", ""]
    return [*cells, " / ".join(str(row["calls"]) for row in case.sides.values())]


def _ours(row: Row, gloo: Row) -> list[str]:
    return [seconds(row["median_s"]), seconds(row["p99_s"]), times(row["median_s"], gloo["median_s"])]


def _bandwidth(rows: Sequence[Row]) -> str:
    found = cases(rows, "memory")
    body = [(str(case.ranks), *(_gb(bandwidth(case.sides[side])) for side in PASSES)) for case in found]
    table = grid(("ranks", *(f"{side}, GB/s" for side in PASSES)), body)
    return f"## Memory bandwidth\n\n{table}\n\n{_kernels(rows)}".strip() if body else _kernels(rows)


def _kernels(rows: Sequence[Row]) -> str:
    body = [(row["of"], row["side"], digits(row["gb_per_s"])) for row in rows if row["part"] == "kernels"]
    return f"One core alone, the engine's own kernels:\n\n{grid(('', '', 'GB/s'), body)}" if body else ""


def _distance(rows: Sequence[Row]) -> str:
    memory = {case.ranks: case for case in cases(rows, "memory")}
    pairs = [(case, memory.get(case.ranks)) for case in cases(rows, "all_reduce")]
    whole = [(case, probes) for case, probes in pairs if probes and probes.size_bytes == case.size_bytes]
    body = [line for case, probes in whole for line in _distances(case, probes)]
    head = ("ranks", "size", "tensors", "bytes at least", "time at full bandwidth", "measured", "share")
    return f"## Distance to the limit of memory bandwidth\n\n{grid(head, body)}" if body else ""


def _distances(case: Case, probes: Case) -> Iterator[Sequence[str]]:
    """The best probe sets the limit: whatever mix of reads and writes suits this memory most."""
    full = max(bandwidth(row) for row in probes.sides.values())
    for side in _OURS:
        least, took = least_bytes(side, case.ranks, case.size_bytes), case.sides[side]["median_s"]
        place = (str(case.ranks), size(case.size_bytes), _TENSORS[side])
        yield (*place, f"{_gb(least)} GB", seconds(least / full), seconds(took), f"{least / full / took:.0%}")


def _cpu(rows: Sequence[Row]) -> str:
    found = [*cases(rows, "all_reduce"), *cases(rows, "all_reduce over TCP")]
    body = [_cpu_of(case) for case in found]
    head = ("collective", "ranks", "size", "Gloo", *_OURS)
    return f"## CPU seconds per GB\n\n{grid(head, body)}" if body else ""


def _cpu_of(case: Case) -> list[str]:
    moved_gb = case.ranks * case.size_bytes / 1e9
    rows = map(case.sides.get, ("gloo", *_OURS))
    figures = (digits(row["cpu_s_per_call"] / moved_gb) if row else "" for row in rows)
    return [case.part, str(case.ranks), size(case.size_bytes), *figures]


def _training(rows: Sequence[Row]) -> str:
    found = cases(rows, "training step")
    body = [line for case in found for line in map(_step, case.sides.values())]
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


def _gb(value: float) -> str:
    return digits(value / 1e9)


_OTHERS = ("reduce_scatter_tensor", "all_gather_into_tensor", "broadcast", "all_to_all_single")
_SECTIONS = (
    _machine,
    _goals,
    _beside("All-reduce on one host", ["all_reduce"]),
    _distance,
    _bandwidth,
    _cpu,
    _beside("Other collectives on one host", _OTHERS),
    _beside("Over TCP", ["all_reduce over TCP"]),
    _training,
    _schedules,
)
