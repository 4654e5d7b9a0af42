"""Parts of a report that many experiments have, from the lines of their notes. Pure."""

from __future__ import annotations

import inspect
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Literal

from scipy import stats

from tweed.report import charts
from tweed.report.notes import Line, differences, find, mean, values, where
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Table

#: Seeds that a comparison needs at least, and the confidence of its intervals.
SEEDS, CONFIDENCE = 5, 0.95
#: A verdict: met or missed; neither, by `judge`; or None: not measured, or not judged.
Verdict = bool | Literal["no difference"] | None
#: A goal, what was measured, and the verdict.
Goal = tuple[str, str, Verdict]


def goals(found: Iterable[Goal], head: str = "goal", fixed: str | None = None) -> Table:
    """A row per goal: what was wanted, what came out, the verdict; a dash where there is none.

    Args:
      fixed: the day, in ISO form, since when the goals stand; it is before the first run.
    """
    words = {True: "met", False: "missed", None: "–", "no difference": "no difference"}
    head += f" (fixed {fixed})" if fixed else ""
    return Table("", [head, "measured", ""], [[goal, what, words[verdict]] for goal, what, verdict in found])


def missing(goal: str) -> Goal:
    """A goal for which nothing was measured."""
    return goal, "–", None


def judge(by_seed: Sequence[float], least: float) -> Verdict:
    """A goal over seeds is met where the 95 % confidence interval of the mean (Student's t; of differences or
    ratios of the same seed, at least five) lies wholly above the threshold, and missed where it lies wholly
    below. Where it contains the threshold the verdict is "no difference"; with fewer seeds there is none.

    Args:
      by_seed: what is to be at least `least`, one value per seed.
    """
    if len(by_seed) < SEEDS:
        return None
    low, high = interval(by_seed)
    return True if low > least else False if high < least else "no difference"


def rule() -> str:
    """The rule of `judge` in words, for pages: the first paragraph of its docstring."""
    return " ".join((inspect.getdoc(judge) or "").split("\n\n")[0].split())


def interval(by_seed: Sequence[float]) -> tuple[float, float]:
    """Ends of the confidence interval of the mean of two values or more; of a single one, that twice."""
    mean, count = statistics.fmean(by_seed), len(by_seed)
    if count < 2:
        return mean, mean
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1)) * statistics.stdev(by_seed) / count**0.5
    return mean - half, mean + half


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Ends of a confidence interval of the median, by the sign test, which assumes no distribution.

    Args:
      values: six or more; of fewer their range is returned, which contains the median less often than
        `CONFIDENCE`.

    Example:
      >>> median_interval([5, 1, 2, 3, 4, 9]), median_interval(range(20))
      ((1, 9), (5, 14))
    """
    ordered = sorted(values)
    outside = max(int(stats.binom.ppf((1 - CONFIDENCE) / 2, len(ordered), 0.5)), 1)
    return ordered[outside - 1], ordered[-outside]


def of_points(goal: str, points: Sequence[float], least: float) -> Goal:
    """Whether differences in points, one per seed, are at least so many, by `judge`."""
    return (goal, in_points(points), judge(points, least)) if points else missing(goal)


def in_points(points: Sequence[float]) -> str:
    """Mean and interval of differences in points, for people."""
    low, high = interval(points)
    return f"{statistics.fmean(points):+.2f} points ({low:+.2f} to {high:+.2f}; {_seeds(points)})"


def of_ratios(goal: str, ratios: Sequence[float], least: float, more: str = "") -> Goal:
    """Whether ratios, one per seed, are at least so large, by `judge` of their logarithms.

    Args:
      more: goes after the words.
    """
    logs = [math.log(ratio / least) for ratio in ratios]
    return (goal, in_ratios(ratios) + more, judge(logs, 0.0)) if ratios else missing(goal)


def at_most(goal: str, ratios: Sequence[float], most: float) -> Goal:
    """Whether ratios, one per seed, are at most so large, by `judge` of their inverse."""
    logs = [math.log(most / ratio) for ratio in ratios]
    return (goal, in_ratios(ratios), judge(logs, 0.0)) if ratios else missing(goal)


def in_ratios(ratios: Sequence[float]) -> str:
    """Geometric mean and interval of ratios, for people."""
    logs = [math.log(ratio) for ratio in ratios]
    middle, low, high = map(math.exp, (statistics.fmean(logs), *interval(logs)))
    return f"{middle:.2f}× ({low:.2f} to {high:.2f}; {_seeds(ratios)})"


def _seeds(by_seed: Sequence[float]) -> str:
    return f"{len(by_seed)} seed" + "s" * (len(by_seed) != 1)


def spread(found: Sequence[float], digits: int = 2, more: str = "") -> str:
    """Mean and half of the range, for people."""
    return f"{statistics.fmean(found):.{digits}f} (± {(max(found) - min(found)) / 2:.{digits}f}{more})"


def share(lines: Sequence[Line], key: str) -> str:
    """The mean of a share under a key in percent, for people."""
    found = mean(lines, key)
    return "–" if found is None else f"{found:.2%}"


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed; of few values, the largest."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-round(share * 10**6) * len(ordered) // 10**6) - 1))]


def speed(line: Line) -> float | None:
    """Samples per second of a side, by its mean step: what training gets done. None if it made no step, or
    failed after some."""
    has_speed = line["steps_s"] and line["failed"] is None
    return line["samples"] / statistics.fmean(line["steps_s"]) if has_speed else None


def number(value: float | None) -> str:
    """A figure with three digits, for people."""
    if value is None:
        return "–"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3g}"


def times(part: float | None, whole: float | None) -> str:
    """How often `whole` goes into `part`, for people."""
    return "–" if part is None or not whole else f"{number(part / whole)}×"


def speeds(lines: Sequence[Line], places: Sequence[str], sides: Sequence[str]) -> Table:
    """Samples per second per place and side; the first side's factor over each of the others follows."""
    ours, *others = sides
    rows = []
    for place in places:
        found = {side: find(lines, place=place, side=side) for side in sides}
        rates = {side: None if line is None else speed(line) for side, line in found.items()}
        cells = [_rate(found[side], rates[side]) for side in sides]
        rows.append([place, *cells, *(times(rates[ours], rates[side]) for side in others)])
    head = ["", *sides, *(f"{ours} / {side}" for side in others)]
    return Table("Samples per second, and the factor", head, rows)


def _rate(line: Line | None, rate: float | None) -> str:
    if line is None:
        return "–"
    cut = f" ({len(line['steps_s'])} steps)" if len(line["steps_s"]) < 5 else ""
    return f"{number(rate)}{cut}" if line["failed"] is None else "failed"


def tails(lines: Sequence[Line], places: Sequence[str], sides: Sequence[str]) -> Table:
    """Step times per place and side: median, 99th percentile and their ratio."""
    rows = []
    for place in places:
        found = [find(lines, place=place, side=side) for side in sides]
        rows.append([place, *(_tail(line) for line in found)])
    return Table("Step time: median / 99th percentile in seconds (ratio)", ["", *sides], rows)


def _tail(line: Line | None) -> str:
    if line is None or not line["steps_s"]:
        return "–"
    half, most = statistics.median(line["steps_s"]), quantile(line["steps_s"], 0.99)
    return f"{number(half)} / {number(most)} ({most / half:.2f})"


def exchanges(lines: Sequence[Line], places: Sequence[str], side: str) -> Table:
    """What an exchange of one side took, what the link alone would take, and what share arrived."""
    rows = []
    for place in places:
        line = find(lines, place=place, side=side)
        if line is None or not line["sync_s"]:
            continue
        took = statistics.median(line["sync_s"])
        sent = line["contributed_bytes"]
        share = f"{1 - line['lost_bytes'] / sent:.2%}" if sent else "all"
        bound = line["bound_s"]
        rows.append([place, number(took), number(bound), number(took - bound), share])
    head = ["", "exchange (s)", "link bound (s)", "lost against it (s)", "delivered"]
    return Table(f"{side}: an exchange beside the link's bound", head, rows)


def failures(lines: Sequence[Line]) -> list[str]:
    """A sentence for each network at which a side failed."""
    return [
        f"{line['side']} failed at {line['place']}: {line['failed']}" for line in lines if line.get("failed")
    ]


def learned(lines: Sequence[Line]) -> Section:
    """Accuracy of each variant beside the first one, per task, over seeds.

    Args:
      lines: of kind "training_run"; of each task the first variant is what the others are compared with.
    """
    rows, dots = [], {}
    for task in values(lines, "task"):
        base, *others = values(where(lines, task=task), "variant")
        first = where(lines, task=task, variant=base)
        rows.append([task, base, *_learned(first), "–", share(first, "lost")])
        for variant in others:
            mine = where(lines, task=task, variant=variant)
            dots[f"{task}: {variant}"] = apart = differences(mine, first)
            rows.append([task, variant, *_learned(mine), with_range(apart), share(mine, "lost")])
    head = ["task", "variant", "seeds", "accuracy", "difference in points", "lost"]
    plots = []
    if dots:
        figure = charts.differences(dots, "accuracy against reliable training, points (bar: mean)", 0.5)
        title = "Final accuracy against the reliable run of the same seed"
        plots.append(Plot("accuracy", title, svg(figure)))
    return Section("What is learned", plots=plots, tables=[Table("Final accuracy", head, rows)])


def _learned(lines: Sequence[Line]) -> list[str]:
    reached = [line["accuracy"] for line in lines]
    return [str(len(lines)), f"{statistics.fmean(reached):.2%} (± {50 * (max(reached) - min(reached)):.2f})"]


def with_range(points: Sequence[float]) -> str:
    """Mean, least and most of differences in points, for people."""
    return f"{statistics.fmean(points):+.2f} ({min(points):+.2f} to {max(points):+.2f})" if points else "–"
