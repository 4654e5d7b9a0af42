"""Tables that set tweed beside Gloo. A section maps all rows to Markdown; to nothing if it has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench.cases import OURS, Case, cases
from bench.race import LOCKSTEP_BYTES
from bench.run import Row
from bench.units import digits, grid, seconds, size, times


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


def goals(rows: Sequence[Row]) -> str:
    """Each goal and what came of it; by medians."""
    found = {(case.size_bytes, case.ranks): case for case in cases(rows, "all_reduce")}
    body = [_goal(goal, found[goal[:2]]) for goal in GOALS if goal[:2] in found]
    head = ("all_reduce of", "ranks", "tensors", "goal, times Gloo", "measured", "reached")
    return f"## Goals\n\n{grid(head, body)}" if body else ""


def _goal(goal: Goal, case: Case) -> Sequence[str]:
    factor = case.sides["gloo"]["median_s"] / case.sides[goal.side]["median_s"]
    place = (size(goal.size_bytes), str(goal.ranks), OURS[goal.side])
    return (*place, f"{goal.factor:g}x", f"{digits(factor)}x", "yes" if factor >= goal.factor else "**no**")


def beside(title: str, *parts: str) -> Callable[[Sequence[Row]], str]:
    """A section with Gloo's and our times for these parts."""

    def section(rows: Sequence[Row]) -> str:
        found = cases(rows, *parts)
        ours = [side for side in OURS if any(side in case.sides for case in found)]
        pairs = [f"{side} {what}" for side in ours for what in ("median", "p99", "times Gloo")]
        head = ("collective", "ranks", "size", "Gloo median", "Gloo p99", *pairs, "calls")
        return f"## {title}\n\n{grid(head, [_times_of(case, ours) for case in found])}" if found else ""

    return section


def _place(case: Case) -> list[str]:
    return [case.part, str(case.ranks), size(case.size_bytes)]


def _times_of(case: Case, ours: Sequence[str]) -> list[str]:
    gloo = case.sides["gloo"]
    cells = [*_place(case), seconds(gloo["median_s"]), seconds(gloo["p99_s"])]
    for row in (case.sides[side] for side in ours):
        cells += [seconds(row["median_s"]), seconds(row["p99_s"])]
        cells += [times(row["median_s"], gloo["median_s"])]
    return [*cells, " / ".join(str(row["calls"]) for row in case.sides.values())]


def in_a_row(rows: Sequence[Row]) -> str:
    """Seconds that calls in a row take, per call; less than a call, as ranks need not be in the same one."""
    found = [case for case in cases(rows, "all_reduce") if case.size_bytes < LOCKSTEP_BYTES]
    head = ("collective", "ranks", "size", "Gloo", *(cell for side in OURS for cell in (side, "times Gloo")))
    body = [_in_a_row(case) for case in found]
    return f"## Calls in a row, time per call\n\n{grid(head, body)}" if body else ""


def _in_a_row(case: Case) -> list[str]:
    gloo = case.sides["gloo"]["in_a_row_s"]
    ours = [case.sides[side]["in_a_row_s"] for side in OURS]
    return [
        *_place(case),
        seconds(gloo),
        *(cell for our in ours for cell in (seconds(our), times(our, gloo))),
    ]


def cpu(rows: Sequence[Row]) -> str:
    """CPU seconds of all ranks per GB of all buffers together."""
    body = [_cpu_of(case) for case in cases(rows, "all_reduce", "all_reduce over TCP")]
    return (
        f"## CPU seconds per GB\n\n{grid(('collective', 'ranks', 'size', 'Gloo', *OURS), body)}"
        if body
        else ""
    )


def _cpu_of(case: Case) -> list[str]:
    moved_gb = case.ranks * case.size_bytes / 1e9
    found = map(case.sides.get, ("gloo", *OURS))
    return [*_place(case), *(digits(row["cpu_s_per_call"] / moved_gb) if row else "" for row in found)]
