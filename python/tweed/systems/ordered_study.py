"""The report of the experiment on ordered transmission. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from tweed.report import charts
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Study, Table
from tweed.systems import sections
from tweed.systems.base import Line

#: Families of problems: those whose ranks differ much, and those whose ranks are alike.
UNEQUAL = ("linear, 1.69^m, M=9", "linear, 1.69^m, M=18", "logistic, 1.3^m, M=18")
ALIKE = ("linear, 1.1^m, M=20", "linear, 1.1^m, M=40")

Verdict = tuple[str, str, bool | None]


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    parts = [Section("Goals", tables=[_verdicts(lines)]), _uploads(_of(lines, "uploads"))]
    for kind, make in (("slope", _slopes), ("channel", _channels), ("network", _networks), ("live", _lives)):
        if found := _of(lines, kind):
            parts.append(make(found))
    lead = "Messages with content that go to a server: all (gradient descent), by LAG's rule, or in order."
    return Study("Ordered gradient: only the most informative workers talk", lead, parts)


def _of(lines: Sequence[Line], kind: str) -> list[Line]:
    return [line for line in lines if line["kind"] == kind and not line.get("done")]


def _verdicts(lines: Sequence[Line]) -> Table:
    uploads = _of(lines, "uploads")
    found: list[Verdict] = [*_promises(lines), *_counts(uploads), *_rates(lines), *_waits(lines)]
    words = {True: "met", False: "missed", None: "–"}
    return Table("", ["goal", "measured", ""], [[goal, what, words[met]] for goal, what, met in found])


def _promises(lines: Sequence[Line]) -> Iterator[Verdict]:
    ordered = [line for line in lines if "out_of_order" in line]
    ideal = [line for line in ordered if line["kind"] in ("uploads", "slope")]
    late = sum(line["out_of_order"] for line in ideal)
    yield "messages come longest first (no disturbance)", f"{late} out of order", late == 0
    over = sum(line["over"] for line in ordered)
    goal = "what is left out never exceeds what the server vouched for, disturbances included"
    yield (
        goal,
        f"{over} of {sum(line['iterations'] for line in ordered if 'iterations' in line):,} iterations",
        over == 0,
    )
    exact = sections.find(lines, kind="exact")
    if exact is not None:
        yield (
            "nothing allowed: gradient descent, bit for bit",
            f"{exact['iterations']} iterations",
            exact["equal"],
        )
    beyond = sum(line["beyond_lag"] for line in ideal if line["method"] == "history")
    yield "from the same state, senders are among LAG-WK's (history)", f"{beyond} beyond", beyond == 0


def _mean(uploads: Sequence[Line], problem: str, method: str, what: str = "uploads") -> float | None:
    """The mean over seeds; None if there is none or one did not reach the goal."""
    found = [line for line in uploads if line["problem"] == problem and line["method"] == method]
    if not found or any(line["gap"] > 1e-8 for line in found):
        return None
    return statistics.fmean(line[what] for line in found)


def _ratio(uploads: Sequence[Line], problem: str, ours: str, theirs: str) -> float | None:
    mine, base = _mean(uploads, problem, ours), _mean(uploads, problem, theirs)
    return None if mine is None or not base else mine / base


def _counts(uploads: Sequence[Line]) -> Iterator[Verdict]:
    for goal, problems, ours, theirs, most in (
        ("unequal ranks, history: at most 1.1 × LAG-WK's messages", UNEQUAL, "history", "LAG-WK", 1.1),
        ("ranks alike, share 0.9: at least 30 % fewer than LAG-WK", ALIKE, "share 0.9", "LAG-WK", 0.7),
        ("unequal ranks, history: at most a fifth of GD's messages", UNEQUAL, "history", "GD", 0.2),
    ):
        for problem in problems:
            ratio = _ratio(uploads, problem, ours, theirs)
            said = "–" if ratio is None else f"{ratio:.2f} ×"
            yield f"{goal}; {problem}", said, None if ratio is None else ratio <= most


def _rates(lines: Sequence[Line]) -> Iterator[Verdict]:
    for line in _of(lines, "slope"):
        if line["method"] not in ("GD", "LAG-WK"):
            goal = f"not convex, {line['method']}: least squared gradient falls at least as 1/K"
            yield goal, f"K^{line['slope']:.2f}", line["slope"] <= -1


def _waits(lines: Sequence[Line]) -> Iterator[Verdict]:
    channels = _of(lines, "channel")
    plain = [line for line in channels if line["where"] == "one channel"]
    ours = [line["seconds"] for line in plain if line["method"] == "share 0.9"]
    for other in ("GD", "LAG-WK"):
        base = sections.find(plain, method=other)
        if ours and base is not None:
            ratio = min(ours) / base["seconds"]
            yield (
                f"one channel, best window, waiting counted: faster than {other}",
                f"{ratio:.2f} ×",
                ratio < 1,
            )
    for side in ("server, all", "no server, all"):
        for place in dict.fromkeys(line["place"] for line in _of(lines, "live")):
            mine = sections.find(lines, kind="live", place=place, side="server, share 0.9")
            base = sections.find(lines, kind="live", place=place, side=side)
            if mine is not None and base is not None:
                ratio = mine["seconds"] / base["seconds"]
                yield f"live, {place}, share 0.9: faster than “{side}”", f"{ratio:.2f} ×", ratio < 1


def _uploads(uploads: Sequence[Line]) -> Section:
    methods = list(dict.fromkeys(line["method"] for line in uploads))
    rows = []
    for problem in dict.fromkeys(line["problem"] for line in uploads):
        cells = []
        for method in methods:
            count, turns = (_mean(uploads, problem, method, what) for what in ("uploads", "iterations"))
            cells.append("not reached" if count is None or turns is None else f"{count:,.0f} ({turns:,.0f})")
        rows.append([problem, *cells])
    seeds = len({line["seed"] for line in uploads})
    words = [
        f"Means over {seeds} problems each; iterations in brackets. Steps are 1/L, LAG's window 10 and "
        "weight 0.1.",
        "The problems are ours, in the style of LAG's: the smoothness of rank m's part is the base to the "
        "power m. Other draws have other counts: compare within a row.",
    ]
    title = "Messages (iterations) to a gap of 1e-8"
    return Section("Messages", words, tables=[Table(title, ["", *methods], rows)])


def _slopes(lines: Sequence[Line]) -> Section:
    figure = charts.over_time(
        {line["method"]: [(k, _log(value)) for k, value in line["points"]] for line in lines},
        ("iterations", "log10 of the least squared gradient"),
    )
    rows = [[line["method"], f"{line['slope']:.2f}", f"{line['uploads']:,}"] for line in lines]
    table = Table("Robust regression, 1.3^m, M=18", ["", "fitted slope", "messages"], rows)
    plot = Plot("slope", "Least squared gradient over iterations, robust regression", svg(figure))
    return Section("A problem that is not convex", plots=[plot], tables=[table])


def _log(value: float) -> float:
    return math.log10(max(value, 1e-300))


def _channels(lines: Sequence[Line]) -> Section:
    rows = []
    for line in lines:
        window = f"{1000 * line['window_s']:g} ms" if line["window_s"] else "–"
        counts = [f"{line['uploads']:,}", f"{line['iterations']:,}", str(line.get("collisions", "–"))]
        per = 1000 * line["seconds"] / line["iterations"]
        rows.append(
            [f"{line['method']}, {line['where']}", window, *counts, f"{line['seconds']:.3f}", f"{per:.1f}"]
        )
    head = ["", "window", "messages", "iterations", "collisions", "seconds", "ms per iteration"]
    words = [
        f"Virtual time to 1e-8 on “{lines[0]['problem']}”. All share one channel on which a message takes 1 "
        "ms; every hop takes 0.1 ms, computing 1 ms. LAG's silent ranks and the server's stop cost a hop "
        "each way."
    ]
    return Section("Waiting, and disturbed channels", words, tables=[Table("Time", head, rows)])


def _networks(lines: Sequence[Line]) -> Section:
    base = lines[0]["uploads"]
    rows = []
    for line in lines:
        share = line["uploads"] / base
        bits = share * line["bits"] / 32
        first = f"{line['first_uploads']:,} ({line['first_iterations']})"
        cells = [f"{line['accuracy']:.2%}", f"{line['uploads']:,}", f"{share:.2f}", f"{bits:.2f}", first]
        rows.append([line["variant"], *cells])
    head = ["", "accuracy", "messages", "of SGD's messages", "of SGD's bytes", "to 95 % (iterations)"]
    words = [
        f"A perceptron on the digits, 10 ranks, batches of 32, {lines[0]['iterations']} iterations. Momentum "
        "with silent ranks is CHB. Stochastic gradients differ from batch to batch: there is always news, "
        "and less to save."
    ]
    return Section("Stochastic gradients", words, tables=[Table("Accuracy and messages", head, rows)])


def _lives(lines: Sequence[Line]) -> Section:
    rows = []
    for line in lines:
        all_of_them = line["steps"] * line["workers"]
        said = "–" if line["said"] is None else f"{line['said']} of {all_of_them}"
        reached = "–" if line["goal_s"] is None else f"{line['goal_s']:.2f} ({line['goal_steps']})"
        per = 1000 * line["seconds"] / line["steps"]
        rows.append(
            [f"{line['side']}, {line['place']}", said, f"{line['seconds']:.2f}", f"{per:.1f}", reached]
        )
    head = ["", "messages", "seconds", "ms per iteration", "seconds (iterations) to a loss of 0.5"]
    words = [
        "Full gradients of a perceptron on the digits (38 KB), four workers with few classes each, windows "
        "of 20 ms. With a server the model goes from it to each worker, through one link: that is most of an "
        "iteration over slow links. Without, an all-reduce shares the work over all links."
    ]
    return Section("Live ranks", words, tables=[Table("Real time, waiting counted", head, rows)])
