"""Goals, tables and plots of the experiment on ordered transmission. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tweed.experiments.notes import Line, find, mean, values, where
from tweed.report import charts
from tweed.report.comparison import Goal, goals
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Study, Table

#: Families of problems: those whose ranks differ much, and those whose ranks are alike.
UNEQUAL = ("linear, 1.69^m, M=9", "linear, 1.69^m, M=18", "logistic, 1.3^m, M=18")
ALIKE = ("linear, 1.1^m, M=20", "linear, 1.1^m, M=40")


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    parts = [Section("Goals", tables=[goals(_goals(lines))]), _uploads(_of(lines, "uploads"))]
    for kind, make in (("slope", _slopes), ("channel", _channels), ("network", _networks), ("live", _lives)):
        if found := _of(lines, kind):
            parts.append(make(found))
    lead = "Messages with content that go to a server: all (gradient descent), by LAG's rule, or in order."
    return Study("Ordered gradient: only the most informative workers send", lead, parts)


def _of(lines: Sequence[Line], kind: str) -> list[Line]:
    return where(lines, kind=kind, done=None)


def _goals(lines: Sequence[Line]) -> Iterator[Goal]:
    yield from _promises(lines)
    yield from _counts(_of(lines, "uploads"))
    yield from _rates(lines)
    yield from _waits(lines)


def _promises(lines: Sequence[Line]) -> Iterator[Goal]:
    ordered = [line for line in lines if "out_of_order" in line]
    ideal = [line for line in ordered if line["kind"] in ("uploads", "slope")]
    late = sum(line["out_of_order"] for line in ideal)
    yield "messages come longest first (no disturbance)", f"{late} out of order", late == 0
    over = sum(line["over"] for line in ordered)
    goal = "what is withheld never exceeds what the server allows, disturbances included"
    all_of_them = sum(line.get("iterations", 0) for line in ordered)
    yield goal, f"{over} of {all_of_them:,} iterations", over == 0
    exact = find(lines, kind="exact")
    if exact is not None:
        goal = "nothing allowed: gradient descent, bit for bit"
        yield goal, f"{exact['iterations']} iterations", exact["equal"]
    beyond = sum(line["beyond_lag"] for line in ideal if line["method"] == "history")
    yield "from the same state, senders are among LAG-WK's (history)", f"{beyond} beyond", beyond == 0


def _mean(uploads: Sequence[Line], problem: str, method: str, what: str = "uploads") -> float | None:
    """The mean over seeds; None if there is none or one did not reach the goal."""
    found = where(uploads, problem=problem, method=method)
    return None if any(line["gap"] > 1e-8 for line in found) else mean(found, what)


def _ratio(uploads: Sequence[Line], problem: str, ours: str, theirs: str) -> float | None:
    mine, base = _mean(uploads, problem, ours), _mean(uploads, problem, theirs)
    return None if mine is None or not base else mine / base


def _counts(uploads: Sequence[Line]) -> Iterator[Goal]:
    for goal, problems, ours, theirs, most in (
        ("unequal ranks, history: at most 1.1 × LAG-WK's messages", UNEQUAL, "history", "LAG-WK", 1.1),
        ("ranks alike, share 0.9: at least 30 % fewer than LAG-WK", ALIKE, "share 0.9", "LAG-WK", 0.7),
        ("unequal ranks, history: at most a fifth of GD's messages", UNEQUAL, "history", "GD", 0.2),
    ):
        for problem in problems:
            ratio = _ratio(uploads, problem, ours, theirs)
            what = "–" if ratio is None else f"{ratio:.2f} ×"
            yield f"{goal}; {problem}", what, None if ratio is None else ratio <= most


def _rates(lines: Sequence[Line]) -> Iterator[Goal]:
    for line in _of(lines, "slope"):
        if line["method"] not in ("GD", "LAG-WK"):
            goal = f"not convex, {line['method']}: least squared gradient falls at least as 1/K"
            yield goal, f"K^{line['slope']:.2f}", line["slope"] <= -1


def _waits(lines: Sequence[Line]) -> Iterator[Goal]:
    channels = _of(lines, "channel")
    plain = [line for line in channels if line["where"] == "one channel"]
    ours = [line["seconds"] for line in plain if line["method"] == "share 0.9"]
    for other in ("GD", "LAG-WK"):
        base = find(plain, method=other)
        if ours and base is not None:
            ratio = min(ours) / base["seconds"]
            goal = f"one channel, best window, waiting counted: faster than {other}"
            yield goal, f"{ratio:.2f} ×", ratio < 1
    for side in ("server, all", "no server, all"):
        for place in values(_of(lines, "live"), "place"):
            mine = find(lines, kind="live", place=place, side="server, share 0.9")
            base = find(lines, kind="live", place=place, side=side)
            if mine is not None and base is not None:
                ratio = mine["seconds"] / base["seconds"]
                yield f"live, {place}, share 0.9: faster than “{side}”", f"{ratio:.2f} ×", ratio < 1


def _uploads(uploads: Sequence[Line]) -> Section:
    methods = values(uploads, "method")
    rows = []
    for problem in values(uploads, "problem"):
        cells = []
        for method in methods:
            count, turns = (_mean(uploads, problem, method, what) for what in ("uploads", "iterations"))
            cells.append("not reached" if count is None or turns is None else f"{count:,.0f} ({turns:,.0f})")
        rows.append([problem, *cells])
    seeds = len(values(uploads, "seed"))
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
        sent = "–" if line["messages"] is None else f"{line['messages']} of {all_of_them}"
        reached = "–" if line["goal_s"] is None else f"{line['goal_s']:.2f} ({line['goal_steps']})"
        per = 1000 * line["seconds"] / line["steps"]
        rows.append(
            [f"{line['side']}, {line['place']}", sent, f"{line['seconds']:.2f}", f"{per:.1f}", reached]
        )
    head = ["", "messages", "seconds", "ms per iteration", "seconds (iterations) to a loss of 0.5"]
    words = [
        "Full gradients of a perceptron on the digits (38 KB), four workers with few classes each, windows "
        "of 20 ms. With a server the model goes from it to each worker, through one link: that is most of an "
        "iteration over slow links. Without, an all-reduce shares the work over all links."
    ]
    return Section("Live ranks", words, tables=[Table("Real time, waiting counted", head, rows)])
