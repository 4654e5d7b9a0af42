"""The report of the experiment on CSER. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from tweed.report import charts
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Table
from tweed.systems.base import Line

#: Who is said to be ahead of whom.
ORDER = (
    ("CSER", "CSEA"),
    ("CSER", "CSER-PL"),
    ("CSEA", "QSparse-local-SGD"),
    ("CSER-PL", "QSparse-local-SGD"),
    ("QSparse-local-SGD", "EF-SGD"),
)
SIDES = ("CSER", "CSEA", "CSER-PL", "QSparse-local-SGD", "EF-SGD")
#: A difference in points that counts as none.
POINTS = 0.5

WORDS = (
    "Accuracy is that of the average of all workers' models, in the mean over seeds; ± half of the range. "
    "The learning rate was searched over one grid, equal for all, with the first seed.",
    "Bytes are those of packets that were packed, each worker's own, beside those of all steps in full.",
    "No network takes part: workers are virtual, and walk the code that runs live.",
)


def sections(chosen: Sequence[Line], lines: Sequence[Line]) -> list[Section]:
    """Goals, accuracies, bytes, and what is to be kept in mind; `chosen` are those at the best rates."""
    tasks = list(dict.fromkeys(line["task"] for line in lines))
    goals = [row for task in tasks for row in _goals([line for line in chosen if line["task"] == task], task)]
    goals.append(_formula(lines))
    parts = [Section("Goals", tables=[Table("", ["goal", "measured", ""], goals)])]
    for task in tasks:
        parts.append(_learned([line for line in chosen if line["task"] == task], task))
    return [*parts, _bytes(lines), Section("To keep in mind", words=[*_lengths(lines), *WORDS])]


def _goals(lines: Sequence[Line], task: str) -> Iterator[list[str]]:
    for ratio in sorted({line["ratio"] for line in lines if line["ratio"] > 1}):
        for better, worse in ORDER:
            pairs = _pairs(lines, ratio, better, worse)
            goal = f"{task}, {ratio}×: {better} at least as good as {worse}"
            if not pairs:
                yield [goal, "–", "–"]
                continue
            points = statistics.fmean(pairs)
            seeds = f"{points:+.2f} points over {len(pairs)} seeds"
            yield [goal, seeds, "met" if points >= -POINTS else "missed"]
        yield _forked(lines, ratio, task)


def _pairs(lines: Sequence[Line], ratio: int, better: str, worse: str) -> list[float]:
    """Differences in points, by seed."""
    mine, theirs = (
        {
            line["seed"]: line["accuracy"]
            for line in lines
            if line["ratio"] == ratio and line["method"] == label
        }
        for label in (better, worse)
    )
    return [100 * (mine[seed] - theirs[seed]) for seed in mine if seed in theirs]


def _forked(lines: Sequence[Line], ratio: int, task: str) -> list[str]:
    goal = f"{task}, {ratio}×: the average of CSER's models is better than one of them"
    mine = [line for line in lines if line["ratio"] == ratio and line["method"] == "CSER"]
    if not mine:
        return [goal, "–", "–"]
    points = statistics.fmean(100 * (line["accuracy"] - line["local_accuracy"]) for line in mine)
    return [goal, f"{points:+.2f} points", "met" if points > 0 else "missed"]


def _formula(lines: Sequence[Line]) -> list[str]:
    goal = "bytes within 1 % of 1 / ratio + 1 / (every × reset ratio), for every method"
    shares = [
        line["up_share"] * line["ratio"] for line in lines if line["ratio"] > 1 and not line["diverged"]
    ]
    if not shares:
        return [goal, "–", "–"]
    worst = max(abs(share - 1) for share in shares)
    return [goal, f"at most {worst:.2%} off", "met" if worst <= 0.01 else "missed"]


def _learned(lines: Sequence[Line], task: str) -> Section:
    ratios = sorted({line["ratio"] for line in lines if line["ratio"] > 1})
    dense = [line for line in lines if line["ratio"] == 1]
    head = ["method", *(f"{ratio}×" for ratio in ratios), *(f"one model, {ratio}×" for ratio in ratios)]
    rows = [["dense", *[_mean(dense, "accuracy")] * len(ratios), *["–"] * len(ratios)]]
    panels: dict[str, list[tuple[float, float]]] = {}
    for label in SIDES:
        found = [
            [line for line in lines if (line["method"], line["ratio"]) == (label, ratio)] for ratio in ratios
        ]
        rows.append([label, *(_mean(cell, key) for key in ("accuracy", "local_accuracy") for cell in found)])
        panels[label] = [
            (float(ratio), 100 * statistics.fmean(line["accuracy"] for line in cell))
            for ratio, cell in zip(ratios, found, strict=True)
            if cell
        ]
    if dense:
        level = 100 * statistics.fmean(line["accuracy"] for line in dense)
        panels["dense"] = [(float(ratio), level) for ratio in ratios]
    figure = charts.curves({task: panels}, ("compression", "accuracy of the average model (%)"), log_x=True)
    plot = Plot(task, f"{task}: accuracy over compression", svg(figure))
    return Section(f"What is learned: {task}", plots=[plot], tables=[Table("Accuracy", head, rows)])


def _mean(lines: Sequence[Line], key: str) -> str:
    if not lines:
        return "–"
    values = [100 * line[key] for line in lines]
    rate = f", lr {lines[0]['lr']:g}" if key == "accuracy" else ""
    return f"{statistics.fmean(values):.1f} (± {(max(values) - min(values)) / 2:.1f}{rate})"


def _bytes(lines: Sequence[Line]) -> Section:
    rows = []
    whole = [line for line in lines if line["ratio"] > 1 and not line["diverged"]]
    for task, ratio in sorted({(line["task"], line["ratio"]) for line in whole}):
        row = [f"{task}, {ratio}×"]
        for label in SIDES:
            shares = [
                line["up_share"] * ratio
                for line in whole
                if (line["task"], line["ratio"], line["method"]) == (task, ratio, label)
            ]
            row.append(f"{statistics.fmean(shares):.4f}" if shares else "–")
        rows.append(row)
    table = Table("Bytes said, beside 1 / R of the dense ones (1 is as the formula says)", ["", *SIDES], rows)
    return Section("Bytes", tables=[table])


def _lengths(lines: Sequence[Line]) -> Iterator[str]:
    told = {(line["task"], line["steps"], line["batch"]) for line in lines}
    for task, steps, batch in sorted(told):
        yield (
            f"{task}: {steps} steps of {batch} samples per worker. At compression R each number is averaged "
            f"some {steps} / R times in all: at 1,024 times most numbers never are."
        )
