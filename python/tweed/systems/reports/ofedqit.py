"""Goals, tables and plots of the experiment on OFedQIT. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tweed.experiments import notes
from tweed.experiments.notes import Line, find, values, where
from tweed.report import charts
from tweed.report.comparison import Goal, goals, missing
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Study, Table


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    points, tries = (where(lines, kind=kind) for kind in ("point", "ablation"))
    found = [*_exactness(lines), *_better(points), *_hundredth(points), *_flat(lines)]
    parts = [Section("Goals", tables=[goals(found)])]
    if points:
        parts.append(_points(points))
    if tries:
        parts.append(_ablation(tries))
    if regrets := where(lines, kind="regret"):
        parts.append(_regret(regrets))
    lead = (
        "100 clients learn online and send few messages of few bits: who sends, how often, and in which form."
    )
    return Study("OFedQIT: online federated learning, quantised and intermittent", lead, parts)


def _exactness(lines: Sequence[Line]) -> Iterator[Goal]:
    exact = find(lines, kind="exact")
    if exact is not None:
        yield "L=1, p=1, no quantiser: OFedAvg, bit for bit", f"{exact['slots']} slots", exact["equal"]
    counted = [line for line in lines if "formula_bytes" in line]
    if counted:
        off = max(abs(line["sent_bytes"] / line["formula_bytes"] - 1) for line in counted)
        goal = "bytes that were packed are those of the formula, norms included"
        yield goal, f"{off:.4%} off at most", off < 1e-3


def _mean(points: Sequence[Line], learner: str, label: str, what: str) -> float | None:
    return notes.mean(where(points, learner=learner, label=label), what)


def _better(points: Sequence[Line]) -> Iterator[Goal]:
    for learner in values(points, "learner"):
        for budget in ("4.6 %", "0.46 %"):
            ours, theirs = (
                _mean(points, learner, f"{who}, {budget}", "accuracy") for who in ("chosen", "OFedQIT")
            )
            goal = f"{learner}, {budget} of the traffic: the chosen split beats OFedQIT's"
            if ours is None or theirs is None:
                yield missing(goal)
            else:
                yield goal, f"{ours:.2%} against {theirs:.2%}", ours > theirs


def _hundredth(points: Sequence[Line]) -> Iterator[Goal]:
    for learner in values(points, "learner"):
        ours, full = (_mean(points, learner, label, "last_loss") for label in ("chosen, 1 %", "OFedAvg"))
        goal = f"{learner}, 1 % of the traffic: the last fifth's loss within 2 % of OFedAvg's"
        if ours is None or full is None:
            yield missing(goal)
        else:
            yield goal, f"{ours:.4f} against {full:.4f}", ours <= 1.02 * full


def _flat(lines: Sequence[Line]) -> Iterator[Goal]:
    for line in where(lines, kind="regret"):
        half, end = line["points"][len(line["points"]) // 2 - 1], line["points"][-1]
        goal = f"regret / sqrt(T) flat or falling in the second half, {line['label']}"
        yield goal, f"{half[1]:.3f} to {end[1]:.3f}", end[1] <= 1.02 * half[1]


def _points(points: Sequence[Line]) -> Section:
    rows = []
    for learner in values(points, "learner"):
        rows += [_row(points, learner, label) for label in values(where(points, learner=learner), "label")]
    head = ["", "p", "L", "s", "b", "traffic", "accuracy", "accuracy, last fifth", "loss, last fifth"]
    slots = ", ".join(
        f"{learner}: {where(points, learner=learner)[0]['slots']} slots, "
        f"{len(values(where(points, learner=learner), 'seed'))} seeds"
        for learner in values(points, "learner")
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
    line = where(points, learner=learner, label=label)[0]
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
