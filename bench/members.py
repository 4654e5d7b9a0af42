"""Members that are killed and come back, in a testbed: how late the next step is, and what a join costs.

Rows and tables of what `tweed.experiments.member_runs` measures.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.run import Row, quantile
from bench.units import grid, seconds, size
from tweed.errors import NoTestbed
from tweed.experiments.member_runs import FOUNDERS, NETWORK, joined, lateness, strikes

KILLS, JOIN = "members killed", "members that join"
#: A step ends so much later than one that nobody is lost in, at most: the median, and always.
GOAL_S, GOAL_MOST_S = 0.15, 1.0
#: A join makes a step at most so many times as long (median), and the longest at most such a share of a copy
#: that all wait for.
GOAL_STEP, GOAL_PAUSE = 1.3, 1 / 3


@dataclass(frozen=True, slots=True)
class Scope:
    """What is measured.

    Attributes:
      workers: for each, a run with kills.
      kills: in each of them.
      numel: of the gradient, with kills and with a join.
      compute_s: of a step, with kills and with a join.
    """

    workers: tuple[int, ...]
    kills: int
    numel: tuple[int, int]
    compute_s: tuple[float, float]


FULL = Scope((4, 8), 50, (250_000, 6_250_000), (0.1, 1.0))
QUICK = Scope((4,), 5, (250_000, 625_000), (0.1, 0.3))


def rows(scope: Scope) -> Iterator[Row]:
    """A row for each number of workers, and one for the join; without a testbed, one that says why."""
    try:
        for workers in scope.workers:
            print(f"  {workers} workers, {scope.kills} kills", file=sys.stderr, flush=True)
            yield _kills(workers, scope)
        print("  a join", file=sys.stderr, flush=True)
        yield _join(scope)
    except NoTestbed as error:
        yield {"part": "no testbed", "network": str(NETWORK), "why": str(error)}


def _kills(workers: int, scope: Scope) -> Row:
    killed = strikes(workers, {"kill": scope.kills}, seed=workers)
    (found,) = lateness(workers, killed, scope.numel[0], scope.compute_s[0])
    late = sorted(found["late_s"])
    return {
        "part": KILLS, "side": f"{workers} workers", "kills": scope.kills, "bytes": 4 * scope.numel[0],
        "step_s": found["step_s"], "late_median_s": statistics.median(late),
        "late_p99_s": quantile(late, 0.99), "late_most_s": late[-1],
        "rejoined_median_s": statistics.median(found["back_s"]),
    }  # fmt: skip


def _join(scope: Scope) -> Row:
    found = joined(scope.numel[1], scope.compute_s[1])
    spans = found.pop("spans_s")
    return {
        "part": JOIN, "side": f"{FOUNDERS} workers and one", "bytes": 4 * scope.numel[1], **found,
        "step_s": statistics.median(spans), "steps": len(spans), "longest_s": max(spans),
    }  # fmt: skip


def table(rows: Sequence[Row]) -> str:
    """Kills, and the join."""
    kills = [
        (
            row["side"], size(row["bytes"]), str(row["kills"]), seconds(row["step_s"]),
            *(f"{row[what] * 1e3:+.0f} ms" for what in ("late_median_s", "late_p99_s", "late_most_s")),
            seconds(row["rejoined_median_s"]),
        )
        for row in rows
        if row["part"] == KILLS
    ]  # fmt: skip
    head = ("", "gradient", "kills", "step", "later: median", "p99", "most", "the killed is in again after")
    joins = [
        (
            row["side"], size(row["bytes"]), seconds(row["plain_s"]),
            f"{seconds(row['step_s'])} ({row['step_s'] / row['plain_s']:.2f}x, {row['steps']} steps)",
            seconds(row["longest_s"]), seconds(row["copied_s"]), seconds(row["joined_s"]),
        )
        for row in rows
        if row["part"] == JOIN
    ]  # fmt: skip
    other = (
        "", "gradient", "step before", "median step while it joins", "longest", "a copy that all wait for",
        "in after",
    )  # fmt: skip
    words = (
        f"Members behind links of 100 Mbit/s, killed by SIGKILL and started again. The step within which one "
        f"is lost ends later than others; the goal is {GOAL_S * 1e3:.0f} ms (median), {GOAL_MOST_S:.0f} s "
        "(most). Adam's state is twice the parameters; a join gives both, and the last result."
    )
    if not (kills or joins):
        return ""
    return f"## Members that come and go\n\n{words}\n\n{grid(head, kills)}\n\n{grid(other, joins)}"
