"""Goals and tables of the experiment on Hoplite. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from tweed.report.comparison import Goal, goals, missing, of_points, rule
from tweed.report.notes import Line, differences, find, values, where
from tweed.report.study import Section, Study, Table
from tweed.systems.hoplite import applications
from tweed.systems.hoplite.collectives import (
    BASIC,
    LOOK_UP,
    MANY,
    RATE_MBIT,
    RATE_MBIT_OF_MANY,
    payload_rate,
    rate_mbit,
    sizes,
)
from tweed.systems.hoplite.contenders import ASYNCHRONOUS, MODES, ONE_HOST_NODES, SYNCHRONOUS, TRAINED
from tweed.systems.hoplite.plans import DETECTION_S, S_B

#: The day since when the goals stand.
#: Goals by the day since when they stand, the first here; all others stand since the later day.
FIXED, LATER = "2026-11-25", "2026-11-26"
FIRST = {
    "broadcast at most 1.2 S/B",
    "sum at most 1.2 S/B",
    "the origin sends its object once",
    "a copy feeds one receiver at a time",
    "sources 50 ms apart: done 1.05 S/B + 5 ms after the last",
    "a receiver at a tenth of the rate slows no other by 10 %",
    "a death in mode ranges costs at most its detection and 1 ms",
    "broadcast, 8 raylets: 5.5 times as fast as Ray's objects",
    "sum, 8 raylets: 5.5 times as fast as Ray's objects",
    "all-reduce, 8 raylets: 5 times as fast as Ray's objects",
    "broadcast, 8 raylets: at most 1.25 S/B",
    "sum, 8 raylets: at most 1.25 S/B",
}
#: How many times as fast as others, by nodes, collective and side. 0.95: no slower, but for noise.
WANTED = {
    8: {
        ("broadcast", "ray"): 5.5,
        ("broadcast", "gloo"): 4.0,
        ("sum", "ray"): 5.5,
        ("sum", "tree"): 2.0,
        ("sum", "gloo"): 1.5,
        ("all_reduce", "ray"): 5.0,
        ("all_reduce", "gloo"): 0.85,
        ("gather", "ray"): 0.95,
        ("round trip", "ray"): 0.95,
        ("late sum", "gloo"): 1.0,
        ("late all_reduce", "gloo"): 1.0,
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
#: How many times as fast as Ray's objects 8 raylets are, by bytes; and 4 of one host in an all-reduce.
BY_SIZE_NODES, BY_SIZE = 8, {1_024: 2.0}
ONE_HOST = {16_800_000: 8.0, 1_000_000: 8.0, 4_096: 2.0}
#: A look-up takes so much of a call of an actor, at most.
LOOK_UP_SHARE = 0.5
#: The processors are so busy at most: more, and they are what is measured.
BUSY = 0.7
#: How many times as fast as Ray's objects applications are, by nodes: a server and workers.
APPLIED = {
    9: {"serving": 2.2},
    16: {"AlexNet": 5.5, "VGG-16": 4.5, "ResNet-50": 2.7, "actor-critic": 3.9, "policy sync": 1.9},
    17: {"serving": 3.3},
    24: {"AlexNet": 7.8},
}
#: With models behind refs of Ray's own they are so fast, at least.
DIRECT_SHARE = 0.9
#: An update of asynchronous SGD takes so many S/B, where the server steps by blocks.
UPDATE = 1.1
#: By so much asynchronous SGD may be below synchronous.
POINTS = 1.5
BESIDE = {"ray": "Ray's objects", "tree": "a tree of Ray's tasks", "gloo": "Ray's collectives on Gloo"}
WORDS = {
    "broadcast": "broadcast",
    "sum": "sum",
    "all_reduce": "all-reduce",
    "gather": "gather",
    "round trip": "round trip",
    "late sum": "sum of sources spread over S/B",
    "late all_reduce": "all-reduce of sources spread over S/B",
}


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    lead = "Objects that processes put, get and sum: the planner simulated, the collectives beside Ray's."
    return Study("Hoplite: collectives that form as objects appear", lead, sections(lines))


def sections(lines: Sequence[Line]) -> list[Section]:
    """Goals, the planner simulated, the collectives live, and what is to be kept in mind."""
    judged = {goal[0]: goal for goal in verdicts(lines)}
    first = [goal for name, goal in judged.items() if name in FIRST]
    later = [goal for name, goal in judged.items() if name not in FIRST]
    parts = [Section("Goals", tables=[goals(first, fixed=FIXED), goals(later, fixed=LATER)])]
    parts.append(Section("The planner, simulated", tables=[_pipelined(lines), _deaths(lines)]))
    if where(lines, kind="updates"):
        parts.append(Section("Asynchronous SGD, simulated", tables=[_updates(lines)]))
    if where(lines, kind="live"):
        parts.append(Section("Between raylets, beside Ray's objects", tables=[_live(lines)]))
    if where(lines, kind="one host"):
        parts.append(Section("Between raylets of one host", tables=[_one_host(lines)]))
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
    for mode in MODES:
        yield _deaths_goal(lines, mode)
    yield _update_goal(lines)
    for nodes in WANTED:
        yield from _live_goals(lines, nodes)
    for nodes, wanted in APPLIED.items():
        yield from _application_goals(lines, nodes, wanted)
    for name in applications.DEATHS:
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


def _deaths_goal(lines: Sequence[Line], mode: str) -> Goal:
    """In mode "whole" what the destination had forms again, after one pipeline fill."""
    again = {
        "ranges": "its detection and 1 ms",
        "whole": "that, what the destination had, and a pipeline fill",
    }
    goal = f"a death in mode {mode} costs at most {again[mode]}"
    found = where(lines, kind="death", mode=mode)
    if not found:
        return missing(goal)
    known_s = 1.5 * DETECTION_S + 0.001
    had = [(line["share"] * S_B + line["fill_s"]) if mode == "whole" else 0.0 for line in found]
    is_met = all(line["seconds"] <= known_s + most for line, most in zip(found, had, strict=True))
    return goal, f"at most {1e3 * max(line['seconds'] for line in found):.1f} ms", is_met


def _update_goal(lines: Sequence[Line]) -> Goal:
    goal = f"asynchronous SGD simulated, the server's step by blocks, AlexNet: at most {UPDATE:g} S/B"
    found = {line["ranks"]: line for line in where(lines, kind="updates", application="AlexNet")}
    if not found:
        return missing(goal)
    words = (f"{line['blocks']:.2f} of {ranks - 1} workers" for ranks, line in found.items())
    return goal, ", ".join(words), max(line["blocks"] for line in found.values()) <= UPDATE


def _live_goals(lines: Sequence[Line], nodes: int) -> Iterator[Goal]:
    nbytes = sizes(nodes)[0]
    for (collective, side), least in WANTED[nodes].items():
        goal = f"{WORDS[collective]}, {nodes} raylets: {least:g} times as fast as {BESIDE[side]}"
        yield _faster(lines, goal, least, side, kind="live", nodes=nodes, bytes=nbytes, collective=collective)
    for collective in ("broadcast", "sum"):
        goal = f"{WORDS[collective]}, {nodes} raylets: at most {NEAR[nodes]} S/B"
        facts = {"kind": "live", "nodes": nodes, "bytes": nbytes, "collective": collective, "side": "tweed"}
        ours, s_b = _median(lines, **facts), nbytes / payload_rate(nodes)
        yield missing(goal) if ours is None else (goal, f"{ours / s_b:.2f} S/B", ours / s_b <= NEAR[nodes])
    goal = f"{nodes} raylets: processors at most {BUSY:.0%} busy"
    busy = [line["busy"] for line in where(lines, kind="live", nodes=nodes, bytes=nbytes)]
    yield (goal, f"{max(busy):.0%}", max(busy) <= BUSY) if busy else missing(goal)


def _by_size_goals(lines: Sequence[Line]) -> Iterator[Goal]:
    for nbytes, least in ONE_HOST.items():
        goal = (
            f"all-reduce of {_bytes(nbytes)}, {ONE_HOST_NODES} raylets of one host: {least:g} times as fast"
        )
        goal += f" as {BESIDE['ray']}"
        facts = {"kind": "one host", "bytes": nbytes, "collective": "all_reduce"}
        yield _faster(lines, goal, least, "ray", **facts)
    for nbytes, least in BY_SIZE.items():
        for collective in BASIC:
            goal = (
                f"{WORDS[collective]} of {_bytes(nbytes)}, {BY_SIZE_NODES} raylets: {least:g} times as fast"
            )
            goal += f" as {BESIDE['ray']}"
            facts = {"kind": "live", "nodes": BY_SIZE_NODES, "bytes": nbytes, "collective": collective}
            yield _faster(lines, goal, least, "ray", **facts)
    goal = f"a look-up, {BY_SIZE_NODES} raylets: at most {LOOK_UP_SHARE:g} of a call of an actor"
    facts = {"kind": "live", "nodes": BY_SIZE_NODES, "collective": LOOK_UP}
    ours, theirs = (_median(lines, **facts, side=side) for side in ("tweed", "ray"))
    if ours is None or theirs is None:
        yield missing(goal)
    else:
        yield goal, f"{1e3 * ours:.2f} of {1e3 * theirs:.2f} ms", ours <= LOOK_UP_SHARE * theirs


def _faster(lines: Sequence[Line], goal: str, least: float, side: str, **facts: Any) -> Goal:
    """Whether tweed's median is so many times below another side's."""
    ours, theirs = (_median(lines, **facts, side=each) for each in ("tweed", side))
    if ours is None or theirs is None:
        return missing(goal)
    return goal, f"{theirs / ours:.2f}×", theirs / ours >= least


def _application_goals(lines: Sequence[Line], nodes: int, wanted: dict[str, float]) -> Iterator[Goal]:
    for name, least in wanted.items():
        goal = f"{name}, {nodes - 1} workers: {least:g} times as fast as Ray's objects"
        ours, theirs = (_of_application(lines, nodes, name, side) for side in ("tweed", "ray"))
        if ours is None or theirs is None:
            yield missing(goal)
            continue
        yield goal, f"{theirs / ours:.2f}×", theirs / ours >= least
        if name in applications.ONLY["direct"]:
            goal = f"{name}, {nodes - 1} workers: {DIRECT_SHARE:g} of that speed through Ray's own refs"
            direct = _of_application(lines, nodes, name, "direct")
            yield (
                missing(goal)
                if direct is None
                else (goal, f"{ours / direct:.2f}", ours / direct >= DIRECT_SHARE)
            )


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


def _median(lines: Sequence[Line], **facts: Any) -> float | None:
    """The median of the rounds' seconds; between raylets only of rounds at the rate of these goals."""
    rate = {"rate_mbit": rate_mbit(facts["nodes"])} if facts["kind"] == "live" else {}
    line = find(lines, **facts, **rate)
    return statistics.median(line["seconds"]) if line else None


def _bytes(count: int) -> str:
    return f"{count / 1e6:g} MB" if count >= 1e5 else f"{count / 1024:g} KB"


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
    live = where(lines, kind="live")
    for nodes in values(live, "nodes"):
        for nbytes in sizes(nodes):
            there = where(live, nodes=nodes, rate_mbit=rate_mbit(nodes), bytes=nbytes)
            for collective in values(there, "collective"):
                facts = {"kind": "live", "nodes": nodes, "bytes": nbytes, "collective": collective}
                busy = max(line["busy"] for line in where(there, collective=collective))
                name = f"{WORDS[collective]}, {nodes}"
                rows.append([name, _bytes(nbytes), *_cells(lines, **facts), f"{busy:.0%}"])
    head = ["raylets", "of", "tweed", *BESIDE.values(), "gain over Ray's objects", "processors busy, at most"]
    return Table("Medians in milliseconds, actor calls included", head, rows)


def _one_host(lines: Sequence[Line]) -> Table:
    rows = []
    for nbytes in ONE_HOST:
        facts = {"kind": "one host", "bytes": nbytes, "collective": "all_reduce"}
        rows.append([WORDS["all_reduce"], _bytes(nbytes), *_cells(lines, **facts)])
    head = ["", "of", "tweed", *BESIDE.values(), "gain over Ray's objects"]
    return Table(f"{ONE_HOST_NODES} raylets: medians in milliseconds, actor calls included", head, rows)


def _cells(lines: Sequence[Line], **facts: Any) -> list[str]:
    """Milliseconds of each side, and the gain over Ray's objects."""
    found = [_median(lines, **facts, side=side) for side in ("tweed", *BESIDE)]
    ours, theirs = found[:2]
    gain = "–" if ours is None or theirs is None else f"{theirs / ours:.2f}×"
    return [*("–" if each is None else f"{1e3 * each:.1f}" for each in found), gain]


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
        others = [_of_application(lines, nodes, name, side) for side in applications.ONLY]
        more = ["–" if each is None else f"{each / line['s_b']:.2f}" for each in others]
        cells = [f"{ours:.2f}", f"{theirs:.2f}", f"{theirs / ours:.1f}×", f"{line['bound']:.2f}", *more]
        rows.append([f"{name}, {nodes - 1} workers", *cells])
    more = ["the server's step by blocks", "through Ray's own refs"]
    head = ["application", "tweed", "Ray", "gain", "no round takes less than", *more]
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
        "Simulated: 10 Gbit/s, 50 µs, 5 µs per message. Of 1 GiB where all goes well; else S/B is "
        f"{S_B:g} s, and a death is known after 1 to 3 ms.",
        f"Live: links of {RATE_MBIT} Mbit/s, {RATE_MBIT_OF_MANY} of more than {MANY} raylets; of a packet's "
        "1514 bytes 1448 are payload, and B is the rate of these. All raylets share one machine, whose "
        "processors are not shaped.",
        "Applications: workers sleep as long as the paper's models take on one P100.",
        "Training: processes of this host without links; the first 7 of 15 gradients make an asynchronous "
        "step. Each side at the best learning rate of a search of its own, with another seed.",
        "A death: the server's step waits for the whole sum, as that may begin anew.",
        f"Of accuracy: {rule()}",
    ]
