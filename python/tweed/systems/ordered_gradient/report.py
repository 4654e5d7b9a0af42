"""Goals, tables and plots of the experiment on ordered transmission. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tweed.report.comparison import Goal, at_most, goals, rule
from tweed.report.notes import Line, find, mean, values, where
from tweed.report.study import Section, Study, Table
from tweed.systems.ordered_gradient.contenders import OURS

#: The day since when the goals stand.
FIXED = "2026-11-23"
#: Families of problems: those whose ranks differ much, those whose ranks are alike, and one not convex.
UNEVEN = ("linear, 1.69^m, M=9", "linear, 1.69^m, M=18", "logistic, 1.3^m, M=18")
EVEN = ("linear, 1.1^m, M=20", "linear, 1.1^m, M=40")
ROBUST = ("not convex, 1.3^m, M=18",)


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    parts = [Section("Goals", tables=[goals(_goals(lines), fixed=FIXED)]), _uploads(_of(lines, "uploads"))]
    for kind, make in (("network", _networks), ("channel", _channels), ("live", _lives)):
        if found := _of(lines, kind):
            parts.append(make(found))
    parts.append(Section("To keep in mind", words=WORDS))
    lead = "Messages with content that go to a server: all (gradient descent), by LAG's rule, or in order."
    return Study("Ordered gradient: only the most informative workers send", lead, parts)


#: What a reader must know of the figures.
WORDS = (
    "Every method steps at the learning rate at which it needs fewest messages, and on a channel least "
    "time, gradient descent and LAG too: searched on five problems that are not judged (on the digits 20), "
    "all of which it must solve, by factors of 1.5, widened until the best lies inside. So each does what "
    "it does best, and not all the same.",
    rule(),
    "Ratios are of the same seed, their means geometric. Rows of live ranks are single runs and are not "
    "judged.",
)


def _of(lines: Sequence[Line], kind: str) -> list[Line]:
    return where(lines, kind=kind)


def _goals(lines: Sequence[Line]) -> Iterator[Goal]:
    yield from _promises(lines)
    yield from _counts([*_of(lines, "uploads"), *_of(lines, "network")])
    yield from _waits(lines)


def _promises(lines: Sequence[Line]) -> Iterator[Goal]:
    ordered = [line for line in lines if "out_of_order" in line]
    ideal = [line for line in ordered if line["kind"] != "channel"]
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


def _mean(lines: Sequence[Line], problem: str, method: str, what: str = "uploads") -> float | None:
    """The mean over seeds; None if there is none or one did not reach the goal."""
    found = where(lines, problem=problem, method=method)
    return mean(found, what) if all(line["reached"] for line in found) else None


def _fewer(lines: Sequence[Line], goal: str, problem: str, theirs: str, most: float) -> Goal:
    """Our messages over theirs, by seed; no verdict where a seed of either did not reach the goal."""
    mine, base = (where(lines, problem=problem, method=method) for method in (OURS, theirs))
    for method, found in ((OURS, mine), (theirs, base)):
        if short := where(found, reached=False):
            return goal, f"{method} is not there with {len(short)} of {len(found)} seeds", None
    count = {line["seed"]: line["uploads"] for line in base}
    ratios = [line["uploads"] / count[line["seed"]] for line in mine if line["seed"] in count]
    return at_most(goal, ratios, most)


def _counts(lines: Sequence[Line]) -> Iterator[Goal]:
    for goal, problems, theirs, most in (
        ("uneven ranks: at most 1.1 × LAG-WK's messages", UNEVEN, "LAG-WK", 1.1),
        ("ranks alike: at least 30 % fewer than LAG-WK", EVEN, "LAG-WK", 0.7),
        ("uneven ranks: at most a fifth of GD's messages", UNEVEN, "GD", 0.2),
        ("not convex: at most 1.1 × LAG-WK's messages", ROBUST, "LAG-WK", 1.1),
        ("stochastic gradients: fewer messages than LAG-WK", ("digits",), "LAG-WK", 1.0),
        ("stochastic gradients: fewer messages than SGD", ("digits",), "GD", 1.0),
    ):
        for problem in problems:
            yield _fewer(lines, f"{OURS}, {goal}; {problem}", problem, theirs, most)


def _waits(lines: Sequence[Line]) -> Iterator[Goal]:
    plain = where(_of(lines, "channel"), where="one channel")
    tried = [
        where(plain, method=OURS, window_s=window) for window in values(where(plain, method=OURS), "window_s")
    ]
    best = min(tried, key=lambda cell: mean(cell, "seconds") or 0.0, default=[])
    for other in ("GD", "LAG-WK"):
        took = {line["seed"]: line["seconds"] for line in where(plain, method=other)}
        ratios = [line["seconds"] / took[line["seed"]] for line in best if line["seed"] in took]
        yield at_most(f"{OURS}, one channel, best window, waiting counted: faster than {other}", ratios, 1.0)
    for side in ("server, all", "no server, all"):
        for place in values(_of(lines, "live"), "place"):
            mine = find(lines, kind="live", place=place, side=f"server, {OURS}")
            base = find(lines, kind="live", place=place, side=side)
            if mine is not None and base is not None:
                ratio = mine["seconds"] / base["seconds"]
                yield f"live, {place}, {OURS}: faster than “{side}”", f"{ratio:.2f}×, one run", None


def _uploads(uploads: Sequence[Line]) -> Section:
    methods = values(uploads, "method")
    rows = []
    for problem in values(uploads, "problem"):
        cells = []
        for method in methods:
            cells.append(_cell(uploads, problem, method))
        rows.append([problem, *cells])
    seeds = len(values(uploads, "seed"))
    words = [
        f"Means over {seeds} problems each; iterations and the learning rate in units of 1/L in brackets. "
        "LAG's window is 10, its weight 0.1.",
        "The problems are ours, in the style of LAG's: the smoothness of rank m's part is the base to the "
        "power m. Other draws have other counts: compare within a row. The gap is that to the least value; "
        "of the problem that is not convex the squared length of the gradient.",
    ]
    title = "Messages (iterations, learning rate) to a gap of 1e-8"
    return Section("Messages", words, tables=[Table(title, ["", *methods], rows)])


def _cell(lines: Sequence[Line], problem: str, method: str) -> str:
    count, turns = (_mean(lines, problem, method, what) for what in ("uploads", "iterations"))
    found = where(lines, problem=problem, method=method)
    rate = found[0]["lr"]
    if count is None or turns is None:
        return f"{len(where(found, reached=True))} of {len(found)} seeds (–, {rate:g})"
    return f"{count:,.0f} ({turns:,.0f}, {rate:g})"


def _channels(lines: Sequence[Line]) -> Section:
    rows = []
    for place, window_s, method in dict.fromkeys(
        (line["where"], line["window_s"], line["method"]) for line in lines
    ):
        mine = where(lines, where=place, window_s=window_s, method=method)
        sums = {key: mean(mine, key) or 0.0 for key in ("uploads", "iterations", "seconds")}
        crashes = f"{mean(mine, 'collisions'):.0f}" if "collisions" in mine[0] else "–"
        counts = [f"{sums['uploads']:,.0f}", f"{sums['iterations']:,.0f}", crashes, f"{sums['seconds']:.3f}"]
        per = 1000 * sums["seconds"] / sums["iterations"]
        window = f"{1000 * window_s:g} ms" if window_s else "–"
        rows.append([f"{method}, {place}", window, f"{mine[0]['lr']:g}", *counts, f"{per:.1f}"])
    head = ["", "window", "rate", "messages", "iterations", "collisions", "seconds", "ms per iteration"]
    words = [
        f"Virtual time to 1e-8 on “{lines[0]['problem']}”, means over seeds, each at the learning rate (in "
        "units of 1/L) at which it is quickest. All share one channel on which a message takes 1 ms; every "
        "hop takes 0.1 ms, computing 1 ms. LAG's silent ranks and the server's stop cost a hop each way."
    ]
    return Section("Waiting, and disturbed channels", words, tables=[Table("Time", head, rows)])


def _networks(lines: Sequence[Line]) -> Section:
    base = _mean(lines, "digits", "GD")
    rows = []
    for method in values(lines, "method"):
        count, bits = _mean(lines, "digits", method), where(lines, method=method)[0]["bits"]
        share = None if count is None or not base else count / base
        cells = ["–", "–"] if share is None else [f"{share:.2f}", f"{share * bits / 32:.2f}"]
        rows.append([method, _cell(lines, "digits", method), *cells])
    head = ["", "messages (iterations, learning rate)", "of SGD's messages", "of SGD's bytes"]
    words = [
        "A perceptron on the digits, 10 ranks with few classes each, batches of 16; messages until the cross "
        "entropy of held-out pictures is 0.15, each method at the learning rate at which it needs fewest. GD "
        "is SGD here; momentum with silent ranks is CHB. "
        f"Means over {len(values(lines, 'seed'))} draws of ranks, batches and start."
    ]
    return Section("Stochastic gradients", words, tables=[Table("Messages", head, rows)])


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
