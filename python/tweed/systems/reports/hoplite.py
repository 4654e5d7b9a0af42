"""Goals and tables of the experiment on Hoplite. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from tweed.experiments import object_applications
from tweed.experiments.notes import Line, differences, find, values, where
from tweed.experiments.object_plans import DETECTION_S, S_B
from tweed.experiments.object_rounds import RATE_MBIT
from tweed.report.comparison import Goal, goals, missing, of_points, rule
from tweed.report.study import Section, Table

#: The day since when the goals stand.
FIXED = "2026-11-25"
MODES, SHARES = ("ranges", "whole"), (0.1, 0.5, 0.9)
#: How many times as fast as others, by nodes, collective and side.
WANTED = {
    8: {
        ("broadcast", "ray"): 5.5,
        ("broadcast", "gloo"): 4.0,
        ("sum", "ray"): 5.5,
        ("sum", "tree"): 2.0,
        ("sum", "gloo"): 1.5,
        ("all_reduce", "ray"): 5.0,
        ("all_reduce", "gloo"): 0.85,
    },
    16: {
        ("broadcast", "ray"): 10.0,
        ("sum", "ray"): 10.0,
        ("sum", "tree"): 2.7,
        ("all_reduce", "ray"): 10.0,
    },
}
#: And how near to S/B broadcast and sum are.
NEAR = {8: 1.25, 16: 1.35}
#: How many times as fast as Ray's objects, by place, raylets, bytes; on one host an all-reduce alone.
BY_SIZE = {
    ("one host", 4, 16_800_000): 8.0,
    ("one host", 4, 1_000_000): 8.0,
    ("one host", 4, 4_096): 2.0,
    ("raylets", 8, 1_000_000): 4.0,
    ("raylets", 8, 1_024): 2.0,
}
_PLACES = {"one host": "raylets of one host", "raylets": "raylets"}
#: How many times as fast as Ray's objects applications are, by nodes: a server and workers.
APPLIED = {
    9: {"serving": 2.2},
    17: {
        "AlexNet": 5.5,
        "VGG-16": 4.5,
        "ResNet-50": 2.7,
        "actor-critic": 3.9,
        "policy sync": 1.9,
        "serving": 3.3,
    },
    25: {"AlexNet": 7.8},
}
#: Sides that train: whether a step takes the first gradients, not all; and momentum.
SYNCHRONOUS, ASYNCHRONOUS = "synchronous SGD", "asynchronous SGD"
TRAINED = {SYNCHRONOUS: (False, 0.0), ASYNCHRONOUS: (True, 0.0), f"{ASYNCHRONOUS}, momentum 0.9": (True, 0.9)}
#: By so much asynchronous SGD may be below synchronous.
POINTS = 1.5
BESIDE = {"ray": "Ray's objects", "tree": "a tree of Ray's tasks", "gloo": "Ray's collectives on Gloo"}
WORDS = {"broadcast": "broadcast", "sum": "sum", "all_reduce": "all-reduce"}


def sections(lines: Sequence[Line]) -> list[Section]:
    """Goals, the planner simulated, the collectives live, and what is to be kept in mind."""
    parts = [Section("Goals", tables=[goals(verdicts(lines), fixed=FIXED)])]
    parts.append(Section("The planner, simulated", tables=[_pipelined(lines), _deaths(lines)]))
    if where(lines, kind="updates"):
        parts.append(Section("Asynchronous SGD, simulated", tables=[_updates(lines)]))
    if where(lines, kind="live", rate_mbit=RATE_MBIT):
        parts.append(Section("Between raylets, beside Ray's objects", tables=[_live(lines)]))
    if where(lines, kind="by size"):
        parts.append(Section("By size, and on one host", tables=[_sizes(lines)]))
    if where(lines, kind="application"):
        parts.append(Section("Applications, beside Ray's objects", tables=[_applications(lines)]))
    if where(lines, kind="death live"):
        parts.append(Section("A worker dies", tables=[_live_deaths(lines)]))
    if where(lines, kind="sgd"):
        parts.append(Section("Training on data", tables=[_trainings(lines)]))
    return [*parts, Section("To keep in mind", words=_words())]


def verdicts(lines: Sequence[Line]) -> Iterator[Goal]:
    """Every goal, and whether it was met."""
    yield from _at_most(lines, "pipelined", "broadcast", "broadcast at most 1.2 S/B", 1.2)
    yield from _at_most(lines, "pipelined", "sum", "sum at most 1.2 S/B", 1.2)
    yield from _at_most(lines, "pipelined", "origin", "the origin sends its object once", 1.0)
    yield from _at_most(lines, "pipelined", "most_fed", "a copy feeds one receiver at a time", 1)
    late = "sources 50 ms apart: done 1.05 S/B + 5 ms after the last"
    yield from _at_most(lines, "arrivals", "seconds", late, 1.05 * S_B + 0.005)
    slow = "a receiver at a tenth of the rate slows no other by 10 %"
    yield from _at_most(lines, "slow", "ratio", slow, 1.1)
    yield _deaths_goal(lines)
    for nodes in WANTED:
        yield from _live_goals(lines, nodes)
    for nodes, wanted in APPLIED.items():
        yield from _application_goals(lines, nodes, wanted)
    for name in object_applications.DEATHS:
        yield _live_death_goal(lines, name)
    yield from _by_size_goals(lines)
    yield from _training_goals(lines)


def _at_most(lines: Sequence[Line], kind: str, key: str, goal: str, most: float) -> Iterator[Goal]:
    found = {line["ranks"]: float(line[key]) for line in where(lines, kind=kind)}
    if not found:
        yield missing(goal)
        return
    words = ", ".join(f"{value:.3g} at {ranks}" for ranks, value in found.items())
    yield goal, words, max(found.values()) <= most


def _deaths_goal(lines: Sequence[Line]) -> Goal:
    goal = "a death in mode ranges costs at most its detection and 1 ms"
    lost = [line["seconds"] for line in where(lines, kind="death", mode="ranges")]
    if not lost:
        return missing(goal)
    return goal, f"at most {1e3 * max(lost):.1f} ms", max(lost) <= 1.5 * DETECTION_S + 0.001


def _live_goals(lines: Sequence[Line], nodes: int) -> Iterator[Goal]:
    for (collective, side), least in WANTED[nodes].items():
        goal = f"{WORDS[collective]}, {nodes} raylets: {least:g} times as fast as {BESIDE[side]}"
        ours, theirs = (_median(lines, nodes, collective, each) for each in ("tweed", side))
        if ours is None or theirs is None:
            yield missing(goal)
            continue
        yield goal, f"{theirs / ours:.2f}×", theirs / ours >= least
    for collective in ("broadcast", "sum"):
        if (ours := _median(lines, nodes, collective, "tweed")) is not None:
            near = ours / where(lines, kind="live", rate_mbit=RATE_MBIT, nodes=nodes)[0]["s_b"]
            goal = f"{WORDS[collective]}, {nodes} raylets: at most {NEAR[nodes]} S/B"
            yield goal, f"{near:.2f} S/B", near <= NEAR[nodes]


def _by_size_goals(lines: Sequence[Line]) -> Iterator[Goal]:
    for (place, nodes, nbytes), least in BY_SIZE.items():
        for collective, words in WORDS.items() if place == "raylets" else [("all_reduce", "all-reduce")]:
            ours, theirs = (_by_size(lines, place, nbytes, collective, side) for side in ("tweed", "ray"))
            what = f"{words} of {_bytes(nbytes)}, {nodes} {_PLACES[place]}"
            goal = f"{what}: {least:g} times as fast as Ray's objects"
            if ours is not None and theirs is not None:
                yield goal, f"{theirs / ours:.2f}×", theirs / ours >= least
            else:
                yield missing(goal)


def _application_goals(lines: Sequence[Line], nodes: int, wanted: dict[str, float]) -> Iterator[Goal]:
    for name, least in wanted.items():
        goal = f"{name}, {nodes - 1} workers: {least:g} times as fast as Ray's objects"
        ours, theirs = (_of_application(lines, nodes, name, side) for side in ("tweed", "ray"))
        if ours is None or theirs is None:
            yield missing(goal)
            continue
        yield goal, f"{theirs / ours:.2f}×", theirs / ours >= least


def _live_death_goal(lines: Sequence[Line], name: str) -> Goal:
    goal = f"{name}: the step in which a worker dies takes at most twice the median + 1 s"
    line = find(lines, kind="death live", application=name, side="tweed")
    if line is None:
        return missing(goal)
    usual, worst = statistics.median(line["seconds"]), max(line["after_s"])
    return goal, f"{worst:.2f} s, median {usual:.2f} s", worst <= 2 * usual + 1


def _training_goals(lines: Sequence[Line]) -> Iterator[Goal]:
    mine, theirs = (where(lines, kind="sgd", side=side) for side in (ASYNCHRONOUS, SYNCHRONOUS))
    goal = f"fashion-mnist, {ASYNCHRONOUS}: accuracy within {POINTS:g} points of synchronous"
    yield of_points(goal, differences(mine, theirs), -POINTS)
    same = [line["replayed"] for line in (*mine, *theirs) if line["replayed"] is not None]
    goal = "its log, replayed in one process, gives the same model"
    yield (goal, f"{sum(same)} of {len(same)}", all(same)) if same else missing(goal)


def _of_application(lines: Sequence[Line], nodes: int, name: str, side: str) -> float | None:
    """The mean round: where half of the workers answer, a short one follows a long one."""
    line = find(lines, kind="application", nodes=nodes, application=name, side=side)
    return statistics.fmean(line["seconds"]) if line else None


def _median(lines: Sequence[Line], nodes: int, collective: str, side: str) -> float | None:
    line = find(lines, kind="live", rate_mbit=RATE_MBIT, nodes=nodes, collective=collective, side=side)
    return statistics.median(line["seconds"]) if line else None


def _by_size(lines: Sequence[Line], place: str, nbytes: int, collective: str, side: str) -> float | None:
    line = find(lines, kind="by size", place=place, bytes=nbytes, collective=collective, side=side)
    return statistics.median(line["seconds"]) if line else None


def _bytes(count: int) -> str:
    return f"{count / 1e6:g} MB" if count >= 1e6 else f"{count / 1024:g} KB"


def _pipelined(lines: Sequence[Line]) -> Table:
    rows = []
    for line in where(lines, kind="pipelined"):
        ranks = line["ranks"]
        late, slow = (find(lines, kind=kind, ranks=ranks) or {} for kind in ("arrivals", "slow"))
        figures = [line["broadcast"], line["sum"], line["all_reduce"]]
        after = f"{late['seconds'] / S_B:.3f}" if late else "–"
        rows.append(
            [f"{ranks}", *(f"{x:.3f}" for x in figures), after, f"{slow['ratio']:.3f}" if slow else "–"]
        )
    head = [
        "processes",
        "broadcast",
        "sum",
        "all-reduce",
        "sum of late sources, after the last",
        "others beside a slow receiver",
    ]
    return Table("Times in units of S/B, and the share by which a slow receiver holds up others", head, rows)


def _deaths(lines: Sequence[Line]) -> Table:
    rows = [
        [
            f"{line['ranks']}",
            line["mode"],
            f"{line['share']:.0%}",
            f"{1e3 * line['seconds']:.1f}",
            f"{line['ranges']}",
        ]
        for line in where(lines, kind="death")
    ]
    head = ["processes", "mode", "death at", "costs (ms)", "ranges with other ids"]
    return Table("A death in the middle of a sum of all but two sources", head, rows)


def _live(lines: Sequence[Line]) -> Table:
    rows = []
    for nodes in values(where(lines, kind="live", rate_mbit=RATE_MBIT), "nodes"):
        there = where(lines, kind="live", rate_mbit=RATE_MBIT, nodes=nodes)
        for collective, words in WORDS.items():
            found = {side: _median(lines, nodes, collective, side) for side in ("tweed", *BESIDE)}
            ours, theirs = found["tweed"], found["ray"]
            if ours is None or theirs is None:
                continue
            cells = ["–" if each is None else f"{each / there[0]['s_b']:.2f}" for each in found.values()]
            gain, busy = f"{theirs / ours:.1f}×", max(line["busy"] for line in there)
            rows.append([f"{words}, {nodes}", *cells, gain, f"{busy:.0%}"])
    head = ["raylets", "tweed", *BESIDE.values(), "gain over Ray's objects", "processors busy, at most"]
    return Table("Medians in units of S/B, actor calls included", head, rows)


def _sizes(lines: Sequence[Line]) -> Table:
    rows = []
    for place, nodes, nbytes in BY_SIZE:
        for collective, words in WORDS.items():
            found = [_by_size(lines, place, nbytes, collective, side) for side in ("tweed", *BESIDE)]
            if found[0] is not None:
                cells = ("–" if each is None else f"{1e3 * each:.1f}" for each in found)
                rows.append([f"{nodes} {_PLACES[place]}", words, _bytes(nbytes), *cells])
    head = ["", "", "of", "tweed", *BESIDE.values()]
    return Table("Medians in milliseconds, actor calls included", head, rows)


def _updates(lines: Sequence[Line]) -> Table:
    rows = [
        [
            f"{line['application']}, {line['ranks'] - 1} workers",
            *(f"{line[key]:.2f}" for key in ("compute", "blocks", "whole")),
        ]
        for line in where(lines, kind="updates")
    ]
    head = ["model", "compute", "the step by blocks", "the step when the sum is complete"]
    return Table("Time of an update, in units of S/B", head, rows)


def _applications(lines: Sequence[Line]) -> Table:
    rows = []
    for line in where(lines, kind="application", side="tweed"):
        nodes, name = line["nodes"], line["application"]
        found = [_of_application(lines, nodes, name, side) for side in ("tweed", "ray")]
        if None in found:
            continue
        ours, theirs = (each / line["s_b"] for each in found if each is not None)
        cells = [f"{ours:.2f}", f"{theirs:.2f}", f"{theirs / ours:.1f}×", f"{line['bound']:.2f}"]
        rows.append([f"{name}, {nodes - 1} workers", *cells])
    head = ["application", "tweed", "Ray", "gain", "no round takes less than"]
    return Table("Mean of a round, in units of S/B", head, rows)


def _live_deaths(lines: Sequence[Line]) -> Table:
    rows = [
        [
            f"{line['application']}, {line['nodes'] - 1} workers",
            line["side"],
            *(f"{x:.2f}" for x in (statistics.median(line["seconds"]), max(line["after_s"]))),
        ]
        for line in where(lines, kind="death live")
    ]
    head = ["application", "side", "median before (s)", "longest from the death on (s)"]
    return Table("A round before and after a worker is killed; Ray starts it anew", head, rows)


def _trainings(lines: Sequence[Line]) -> Table:
    rows = []
    for side in TRAINED:
        found = where(lines, kind="sgd", side=side)
        if found:
            points = [100 * line["accuracy"] for line in found]
            delay = statistics.fmean(line["mean_delay"] for line in found)
            most = max(line["most_delay"] for line in found)
            rows.append([side, f"{found[0]['lr']:g}", _in_percent(points), f"{delay:.1f}", f"{most}"])
    head = ["side", "learning rate", "accuracy", "steps that a gradient is old, mean", "at most"]
    return Table("Fashion-MNIST by 15 workers, as many gradients on each side", head, rows)


def _in_percent(points: Sequence[float]) -> str:
    """Mean and spread over seeds."""
    spread = statistics.stdev(points) if len(points) > 1 else 0.0
    return f"{statistics.fmean(points):.2f} % (± {spread:.2f}; {len(points)} seeds)"


def _words() -> list[str]:
    return [
        f"Simulated: 10 Gbit/s, 50 µs, 5 µs per message, S/B of {S_B:g} s; a death is known after 1 to 3 ms.",
        f"Live: links of {RATE_MBIT} Mbit/s; all raylets share one machine, whose processors are not shaped.",
        "Applications: workers sleep as long as the paper's models take on one P100.",
        "Training: processes of this host without links; the first 7 of 15 gradients make an asynchronous "
        "step. Each side at the best learning rate of a search of its own, with another seed.",
        "A death: the server's step waits for the whole sum, as that may begin anew.",
        "Not measured: 24 raylets.",
        f"Of accuracy: {rule()}",
    ]
