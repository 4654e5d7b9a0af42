"""The report of the experiment on OFedQIT. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from tweed.report import charts
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Study, Table
from tweed.systems import sections
from tweed.systems.base import Line

Verdict = tuple[str, str, bool | None]


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    points, tries = ([line for line in lines if line["kind"] == kind] for kind in ("point", "ablation"))
    parts = [Section("Goals", tables=[_verdicts(lines)])]
    if points:
        parts.append(_points(points))
    if tries:
        parts.append(_ablation(tries))
    if regrets := [line for line in lines if line["kind"] == "regret"]:
        parts.append(_regret(regrets))
    lead = (
        "100 clients learn online and send few messages of few bits: who sends, how often, and in which form."
    )
    return Study("OFedQIT: online federated learning, quantised and intermittent", lead, parts)


def _verdicts(lines: Sequence[Line]) -> Table:
    points = [line for line in lines if line["kind"] == "point"]
    found: list[Verdict] = [*_exactness(lines), *_better(points), *_hundredth(points), *_flat(lines)]
    words = {True: "met", False: "missed", None: "–"}
    return Table("", ["goal", "measured", ""], [[goal, what, words[met]] for goal, what, met in found])


def _exactness(lines: Sequence[Line]) -> Iterator[Verdict]:
    exact = sections.find(lines, kind="exact")
    if exact is not None:
        yield "L=1, p=1, no quantiser: OFedAvg, bit for bit", f"{exact['slots']} slots", exact["equal"]
    counted = [line for line in lines if "formula_bytes" in line]
    if counted:
        off = max(abs(line["sent_bytes"] / line["formula_bytes"] - 1) for line in counted)
        yield (
            "bytes that were packed are those of the formula, norms included",
            f"{off:.4%} off at most",
            off < 1e-3,
        )


def _mean(points: Sequence[Line], learner: str, label: str, what: str) -> float | None:
    found = [line[what] for line in points if line["learner"] == learner and line["label"] == label]
    return statistics.fmean(found) if found else None


def _learners(points: Sequence[Line]) -> list[str]:
    return list(dict.fromkeys(line["learner"] for line in points))


def _better(points: Sequence[Line]) -> Iterator[Verdict]:
    for learner in _learners(points):
        for budget in ("4.6 %", "0.46 %"):
            ours, theirs = (
                _mean(points, learner, f"{who}, {budget}", "accuracy") for who in ("chosen", "OFedQIT")
            )
            goal = f"{learner}, {budget} of the traffic: the chosen split beats OFedQIT's"
            if ours is None or theirs is None:
                yield goal, "–", None
            else:
                yield goal, f"{ours:.2%} against {theirs:.2%}", ours > theirs


def _hundredth(points: Sequence[Line]) -> Iterator[Verdict]:
    for learner in _learners(points):
        ours, full = (_mean(points, learner, label, "last_loss") for label in ("chosen, 1 %", "OFedAvg"))
        goal = f"{learner}, 1 % of the traffic: the last fifth's loss within 2 % of OFedAvg's"
        if ours is None or full is None:
            yield goal, "–", None
        else:
            yield goal, f"{ours:.4f} against {full:.4f}", ours <= 1.02 * full


def _flat(lines: Sequence[Line]) -> Iterator[Verdict]:
    for line in lines:
        if line["kind"] == "regret":
            half, end = line["points"][len(line["points"]) // 2 - 1], line["points"][-1]
            goal = f"regret / sqrt(T) flat or falling in the second half, {line['label']}"
            yield goal, f"{half[1]:.3f} to {end[1]:.3f}", end[1] <= 1.02 * half[1]


def _points(points: Sequence[Line]) -> Section:
    rows = []
    for learner in _learners(points):
        for label in dict.fromkeys(line["label"] for line in points if line["learner"] == learner):
            rows.append(_row(points, learner, label))
    head = ["", "p", "L", "s", "b", "traffic", "accuracy", "accuracy, last fifth", "loss, last fifth"]
    slots = ", ".join(
        f"{learner}: {next(line['slots'] for line in points if line['learner'] == learner)} slots, "
        f"{len({line['seed'] for line in points if line['learner'] == learner})} seeds"
        for learner in _learners(points)
    )
    words = [
        f"Fashion-MNIST, not MNIST; 100 clients, one picture each per slot, each picture once ({slots}). "
        "Accuracy is that of predictions before a picture is learned, over all of the stream. The server "
        "runs Adam at 0.001. Traffic is what clients send, as a share of OFedAvg's; the broadcast is not "
        "counted.",
        "The paper's runs on MNIST ended at 0.9862 (OFedAvg), 0.9798 (4.6 %), 0.9625 (p=0.1) and 0.9536 "
        "(0.46 %).",
    ]
    return Section("Accuracy and traffic", words, tables=[Table("Points", head, rows)])


def _row(points: Sequence[Line], learner: str, label: str) -> list[str]:
    line = next(line for line in points if line["learner"] == learner and line["label"] == label)
    accuracy, last, loss, traffic = (
        _mean(points, learner, label, what) or 0.0
        for what in ("accuracy", "last_accuracy", "last_loss", "traffic")
    )
    levels = "∞" if line["levels"] is None else str(line["levels"])
    pieces = "–" if line["levels"] is None else str(line["pieces"])
    form = [f"{line['probability']:.3g}", str(line["every"]), levels, pieces]
    return [f"{learner}, {label}", *form, f"{traffic:.2%}", f"{accuracy:.2%}", f"{last:.2%}", f"{loss:.4f}"]


def _ablation(tries: Sequence[Line]) -> Section:
    head = ["", "p", "traffic", "accuracy", "loss, last fifth"]
    rows = []
    for line in tries:
        spent = [line["label"], f"{line['probability']:.3f}", f"{line['traffic']:.2%}"]
        rows.append([*spent, f"{line['accuracy']:.2%}", f"{line['last_loss']:.4f}"])
    words = [
        f"All at 1 % of the traffic, {tries[0]['slots']} slots: what norms, levels or short rounds cost, the "
        "probability pays for. Norms are not free, but few of them cost more."
    ]
    return Section("How to spend bytes", words, tables=[Table("One budget", head, rows)])


def _regret(lines: Sequence[Line]) -> Section:
    sides = {line["label"]: [(mark, value) for mark, value in line["points"]] for line in lines}
    figure = charts.over_time(sides, ("slots", "regret / sqrt(slots)"))
    words = [
        "Least squares with 20 parameters, no drift; every client sees another part of space. One bit and a "
        "sign per number, four norms. Beside the best fixed model in hindsight of the same slots."
    ]
    return Section("Regret", words, [Plot("regret", "Regret over the square root of time", svg(figure))])
