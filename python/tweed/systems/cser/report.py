"""Tables and plots of the experiment on CSER. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from tweed.report import charts
from tweed.report.comparison import Goal, goals, missing, of_points, rule, spread
from tweed.report.notes import Line, differences, mean, values, where
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Study, Table
from tweed.systems.cser.contenders import ORDER, SIDES, WORKERS

#: The day since when the goals stand.
FIXED = "2026-11-23"
#: At least as good: not worse by so many points.
POINTS = 0.5

WORDS = (
    "Accuracy is that of the average of all workers' models, in the mean over seeds; ± half of the range. "
    "The learning rate of each method, dense training too, was searched with a seed that is not judged, and "
    "with as many steps: by factors of 3, widened until the best lies inside.",
    rule(),
    "Bytes are those of packets that were packed, each worker's own, beside those of all steps in full.",
    "No network takes part: workers are virtual, and run the code that runs live.",
)


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    lines = where(lines, kind="training")
    found = [goal for task in values(lines, "task") for goal in _goals(where(lines, task=task), task)]
    first = Section("Goals", tables=[goals([*found, _formula(lines)], fixed=FIXED)])
    lead = f"{WORKERS} workers average the same few bytes by six methods: who learns most?"
    return Study("CSER: what is not sent is applied at once", lead, [first, *sections(lines)])


def sections(lines: Sequence[Line]) -> list[Section]:
    """Accuracies, bytes, and what is to be kept in mind."""
    learned = [_learned(where(lines, task=task), task) for task in values(lines, "task")]
    return [*learned, _bytes(lines), Section("To keep in mind", words=[*_lengths(lines), *WORDS])]


def _learned(lines: Sequence[Line], task: str) -> Section:
    ratios = sorted({line["ratio"] for line in lines if line["ratio"] > 1})
    dense = where(lines, ratio=1)
    head = ["method", *(f"{ratio}×" for ratio in ratios), *(f"one model, {ratio}×" for ratio in ratios)]
    rows = [["dense", *[_accuracy(dense, "accuracy")] * len(ratios), *["–"] * len(ratios)]]
    panels: dict[str, list[tuple[float, float]]] = {}
    for label in SIDES:
        found = [where(lines, method=label, ratio=ratio) for ratio in ratios]
        keys = ("accuracy", "local_accuracy")
        rows.append([label, *(_accuracy(cell, key) for key in keys for cell in found)])
        reached = zip(ratios, (mean(cell, "accuracy") for cell in found), strict=True)
        panels[label] = [(float(ratio), 100 * share) for ratio, share in reached if share is not None]
    if (level := mean(dense, "accuracy")) is not None:
        panels["dense"] = [(float(ratio), 100 * level) for ratio in ratios]
    figure = charts.curves({task: panels}, ("compression", "accuracy of the average model (%)"), log_x=True)
    plot = Plot(task, f"{task}: accuracy over compression", svg(figure))
    return Section(f"What is learned: {task}", plots=[plot], tables=[Table("Accuracy", head, rows)])


def _accuracy(lines: Sequence[Line], key: str) -> str:
    if not lines:
        return "–"
    rate = f", lr {lines[0]['lr']:g}" if key == "accuracy" else ""
    return spread([100 * line[key] for line in lines], 1, rate)


def _bytes(lines: Sequence[Line]) -> Section:
    rows = []
    whole = [line for line in lines if line["ratio"] > 1 and not line["diverged"]]
    for task, ratio in sorted({(line["task"], line["ratio"]) for line in whole}):
        found = [where(whole, task=task, ratio=ratio, method=label) for label in SIDES]
        shares = [[line["up_share"] * ratio for line in cell] for cell in found]
        rows.append([f"{task}, {ratio}×", *(f"{fmean(cell):.4f}" if cell else "–" for cell in shares)])
    table = Table(
        "Bytes sent, beside 1 / R of the dense ones (1 is what the formula gives)", ["", *SIDES], rows
    )
    return Section("Bytes", tables=[table])


def _lengths(lines: Sequence[Line]) -> Iterator[str]:
    for task, steps, batch in sorted({(line["task"], line["steps"], line["batch"]) for line in lines}):
        yield (
            f"{task}: {steps} steps of {batch} samples per worker. At compression R each value is averaged "
            f"some {steps} / R times in all: at 1,024 times most values never are."
        )


def _goals(lines: Sequence[Line], task: str) -> Iterator[Goal]:
    """The goals of one task."""
    for ratio in sorted({line["ratio"] for line in lines if line["ratio"] > 1}):
        for better, worse in ORDER:
            mine, theirs = (where(lines, ratio=ratio, method=label) for label in (better, worse))
            goal = f"{task}, {ratio}×: {better} at least as good as {worse} (within {POINTS} points)"
            yield of_points(goal, differences(mine, theirs), -POINTS)
        goal = f"{task}, {ratio}×: the average of CSER's models is better than one of them"
        mine = where(lines, ratio=ratio, method="CSER")
        yield of_points(goal, [100 * (line["accuracy"] - line["local_accuracy"]) for line in mine], 0.0)


def _formula(lines: Sequence[Line]) -> Goal:
    goal = "bytes within 1 % of 1 / ratio + 1 / (every × reset ratio), for every method"
    compressed = [line for line in lines if line["ratio"] > 1 and not line["diverged"]]
    if not compressed:
        return missing(goal)
    worst = max(abs(line["up_share"] * line["ratio"] - 1) for line in compressed)
    return goal, f"at most {worst:.2%} off", worst <= 0.01
