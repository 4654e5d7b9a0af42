"""Goals, tables and the figure of the experiment on ZenoPS. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from tweed.report import charts
from tweed.report.comparison import Goal, goals, of_points, rule, spread
from tweed.report.notes import Line, differences, values, where
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Study, Table
from tweed.systems.zeno_ps.contenders import CLEAN

#: The day since when the goals stand.
FIXED = "2026-11-24"


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    runs, private = where(lines, kind="training"), where(lines, kind="private")
    parts = [Section("Goals", tables=[goals(_goals(runs), fixed=FIXED)]), _accuracies(runs)]
    if private:
        parts.append(_private(private))
    lead = "A fifth of all layers is hostile, and workers skip layers and rounds. Who still learns?"
    return Study("ZenoPS: error reset, validation and local privacy together", lead, [*parts, _words()])


def _goals(runs: Sequence[Line]) -> Iterator[Goal]:
    clean = where(runs, rule="mean", attack=CLEAN)
    for attack in values(runs, "attack"):
        if attack == CLEAN:
            continue
        mine = where(runs, rule="ZenoPS", attack=attack)
        trimmed = where(runs, rule="trimmed mean", attack=attack)
        alone = where(runs, rule="validators alone")
        goal = f"{attack}: ZenoPS within 1 point of the mean without an attack"
        yield of_points(goal, differences(mine, clean), -1.0)
        goal = f"{attack}: ZenoPS 1 point beyond the trimmed mean"
        yield of_points(goal, differences(mine, trimmed), 1.0)
        goal = f"{attack}: ZenoPS 1.5 points beyond validators alone"
        yield of_points(goal, differences(mine, alone), 1.5)


def _accuracies(runs: Sequence[Line]) -> Section:
    attacks = values(runs, "attack")
    rows = [
        [name, *(_cell(where(runs, rule=name, attack=attack)) for attack in attacks)]
        for name in values(runs, "rule")
    ]
    table = Table("Accuracy in percent, and the learning rate", ["", *attacks], rows)
    return Section("What is learned, a fifth of layers hostile", tables=[table])


def _cell(lines: Sequence[Line]) -> str:
    if not lines:
        return "–"
    return spread([100 * line["accuracy"] for line in lines], 1, f", lr {lines[0]['lr']:g}")


def _private(lines: Sequence[Line]) -> Section:
    rows, points = [], []
    for noise in values(lines, "noise"):
        mine = where(lines, noise=noise)
        epsilon = mine[0]["epsilon"]
        if epsilon is not None:
            points.append((epsilon, fmean(line["accuracy"] for line in mine)))
        accuracy = spread([100 * line["accuracy"] for line in mine], 1)
        privacy = "infinite" if not noise else "–" if epsilon is None else f"{epsilon:,.1f}"
        rows.append([f"{noise:g}", privacy, accuracy, f"{mine[0]['lr']:g}"])
    head = ["noise, as a multiple of the clip length", "epsilon at delta 1e-5", "accuracy (%)", "clip length"]
    plots = []
    if len(points) > 1:
        panels = {"64 workers, 30 contributions each": {"clipped, with noise": sorted(points)}}
        figure = charts.curves(panels, ("epsilon at delta 1e-5", "accuracy"), log_x=True)
        plots.append(Plot("epsilon", "Accuracy over epsilon: the mean over seeds", svg(figure)))
    return Section("Accuracy over epsilon", plots=plots, tables=[Table("By noise", head, rows)])


def _words() -> Section:
    words = (
        "Each side has the learning rate that a search with a seed of its own found best, by factors of 3, "
        "widened until the best lies inside. With noise the clip length is searched instead, and the "
        "learning rate is 0.3.",
        rule(),
        "A layer is a tensor of parameters: the model has four, of 50,176, 64, 640 and 10 values. A layer is "
        "skipped with probability 0.2, and all of a worker's with 0.5. What is skipped counts for nothing in "
        "any rule.",
        "A hostile layer, drawn with probability 0.2, is the sixfold opposite of what the worker has, normal "
        "noise eight times as long, or noise with a standard deviation of 1 per value.",
        "Two validators share 1,000 samples which are neither those of training nor those that accuracy is "
        "measured on. Validators alone learn from these by the same local steps, averaged by a mean.",
        "Epsilon is about all data of a worker, against a hub that sees who sends what: the accountant takes "
        "twice the clip length for the sensitivity, and no contribution for hidden. Rényi divergence, by "
        "dp-accounting.",
        "Noise and ZenoPS's test of lengths do not go together: what has noise is many times as long as "
        "validators' steps. Accuracy over epsilon is that of the mean, without hostile layers and skipping.",
        "How workers and validators are set up in the paper is known from its code; its accuracies, and its "
        "form of noise, are not. Goals are from sketches of our own.",
    )
    return Section("To keep in mind", words=words)
