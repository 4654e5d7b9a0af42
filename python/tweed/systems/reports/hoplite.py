"""Goals and tables of the experiment on Hoplite. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from tweed.experiments.notes import Line, find, values, where
from tweed.experiments.object_plans import DETECTION_S, S_B
from tweed.report.comparison import Goal, goals, missing
from tweed.report.study import Section, Table

#: The day since when the goals stand.
FIXED = "2026-11-25"
MODES, SHARES = ("ranges", "whole"), (0.1, 0.5, 0.9)
#: How many times as fast as Ray's objects, by nodes: of broadcast and sum, and of all-reduce.
WANTED = {8: {"broadcast": 5.5, "sum": 5.5, "all_reduce": 5.0}}
#: And how near to S/B.
NEAR = {8: 1.25}
WORDS = {"broadcast": "broadcast", "sum": "sum", "all_reduce": "all-reduce"}


def sections(lines: Sequence[Line]) -> list[Section]:
    """Goals, the planner simulated, the collectives live, and what is to be kept in mind."""
    parts = [Section("Goals", tables=[goals(verdicts(lines), fixed=FIXED)])]
    parts.append(Section("The planner, simulated", tables=[_pipelined(lines), _deaths(lines)]))
    if where(lines, kind="updates"):
        parts.append(Section("Asynchronous SGD, simulated", tables=[_updates(lines)]))
    if where(lines, kind="live"):
        parts.append(Section("Between raylets, beside Ray's objects", tables=[_live(lines)]))
    if where(lines, kind="application"):
        parts.append(Section("Applications, beside Ray's objects", tables=[_applications(lines)]))
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
    for nodes, wanted in WANTED.items():
        yield from _live_goals(lines, nodes, wanted)


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


def _live_goals(lines: Sequence[Line], nodes: int, wanted: dict[str, float]) -> Iterator[Goal]:
    for collective, least in wanted.items():
        goal = f"{WORDS[collective]}, {nodes} raylets: {least:g} times as fast as Ray's objects"
        ours, theirs = (_median(lines, nodes, collective, side) for side in ("tweed", "ray"))
        if ours is None or theirs is None:
            yield missing(goal)
            continue
        yield goal, f"{theirs / ours:.1f}×", theirs / ours >= least
        if collective != "all_reduce":
            near = ours / where(lines, kind="live", nodes=nodes)[0]["s_b"]
            goal = f"{WORDS[collective]}, {nodes} raylets: at most {NEAR[nodes]} S/B"
            yield goal, f"{near:.2f} S/B", near <= NEAR[nodes]


def _median(lines: Sequence[Line], nodes: int, collective: str, side: str) -> float | None:
    line = find(lines, kind="live", nodes=nodes, collective=collective, side=side)
    return statistics.median(line["seconds"]) if line else None


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
    for nodes in values(where(lines, kind="live"), "nodes"):
        unit = where(lines, kind="live", nodes=nodes)[0]["s_b"]
        for collective, words in WORDS.items():
            ours, theirs = (_median(lines, nodes, collective, side) for side in ("tweed", "ray"))
            if ours is not None and theirs is not None:
                cells = [f"{ours / unit:.2f}", f"{theirs / unit:.2f}", f"{theirs / ours:.1f}×"]
                rows.append([f"{words}, {nodes}", *cells])
    return Table("Medians in units of S/B, actor calls included", ["raylets", "tweed", "Ray", "gain"], rows)


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
        ray = find(
            lines, kind="application", nodes=line["nodes"], application=line["application"], side="ray"
        )
        if ray is None:
            continue
        ours, theirs = (statistics.median(side["seconds"]) / line["s_b"] for side in (line, ray))
        cells = [f"{ours:.2f}", f"{theirs:.2f}", f"{theirs / ours:.1f}×", f"{line['bound']:.2f}"]
        rows.append([f"{line['application']}, {line['nodes'] - 1} workers", *cells])
    head = ["application", "tweed", "Ray", "gain", "no round takes less than"]
    return Table("Medians of a round, in units of S/B", head, rows)


def _words() -> list[str]:
    return [
        f"Simulated: 10 Gbit/s, 50 µs, 5 µs per message, S/B of {S_B:g} s; a death is known after 1 to 3 ms.",
        "Live: all raylets share one machine; links are shaped, processors are not.",
        "Applications: workers sleep as long as the paper's models take on one P100.",
        "Not measured yet: training on data, Gloo beside the collectives, deaths under load.",
    ]
