"""Goals, tables and plot of the experiment on double machine learning. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from tweed.report import charts
from tweed.report.comparison import Goal, goals, missing, number, times
from tweed.report.notes import Line, find, values, where
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Study, Table
from tweed.systems.double_ml.contenders import CAPS, CORE_MB, MEMORIES_MB, MODELS, SLOTS, TASKS, WORKERS

#: The day since when the goals stand.
FIXED = "2026-11-28"
#: What is timed, in words.
WORDS = {
    "loop": "one process, a fit after the other",
    "fine": "fine tasks",
    "coarse": "coarse tasks",
    "killed": "fine tasks, 5 % killed",
    "package": "the DoubleML package, in parallel",
}


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    parts = [Section("Goals", tables=[goals(verdicts(lines), fixed=FIXED)])]
    parts += [_times(lines), _coverage(lines), _slots(lines), _bytes(lines), _bills(lines), _words()]
    lead = "An effect and its confidence interval by any learners, fitted as tasks that may fail."
    return Study("Double machine learning", lead, parts)


def verdicts(lines: Sequence[Line]) -> list[Goal]:
    """All goals, with what was measured."""
    found = [*_same(lines), *_covered(lines), *_quick(lines), *_simulated(lines), *_sent(lines)]
    return [*found, *_billed(lines), *_peer(lines)]


def _same(lines: Sequence[Line]) -> Iterator[Goal]:
    goal = "theta, its standard error and all scores have the same bits: fine and coarse tasks, 1, 2 and 8 "
    goal += "workers, with and without kills"
    mine = where(lines, kind="bits")
    is_whole = set(WORKERS) <= {line["workers"] for line in mine}
    yield _alike(goal, mine) if is_whole else missing(goal)
    goal = "5 % of the tasks killed: the same bits as in one process, in each round"
    mine = [line for line in where(lines, kind="timed") if line["contender"] in ("loop", "killed")]
    yield _alike(goal, mine) if mine else missing(goal)


def _alike(goal: str, lines: Sequence[Line]) -> Goal:
    count, deaths = len(values(lines, "digest")), sum(line["deaths"] for line in lines)
    what = f"{count} result{'s' * (count != 1)} of {len(lines)} runs, {deaths} processes killed"
    return goal, what, count == 1 and deaths > 0


def _covered(lines: Sequence[Line]) -> Iterator[Goal]:
    goal = "PLR: intervals at 95 % hold theta in 90 to 98 % of 200 samples"
    line = find(lines, kind="coverage", model="PLR")
    if line is None:
        yield missing(goal)
        return
    share = line["covered"] / line["samples"]
    # A quick look has other samples: they say nothing of the goal.
    verdict = 0.9 <= share <= 0.98 if line["samples"] == 200 else None
    yield goal, f"{share:.1%} of {line['samples']}", verdict


def _quick(lines: Sequence[Line]) -> Iterator[Goal]:
    goal, found = "as many workers as cores: 0.8 of the slots as quick as one process", _ratios(lines, "fine")
    if found:
        slots = where(lines, kind="timed")[0]["slots"]
        quick = 1 / median(found)
        yield goal, f"{quick:.2f}× with {slots} slots, {quick / slots:.2f} of them", quick >= 0.8 * slots
    else:
        yield missing(goal)
    goal, found = "5 % of the tasks killed: under 20 % more time", _ratios(lines, "killed", "fine")
    yield (goal, f"{median(found) - 1:+.1%}", median(found) < 1.2) if found else missing(goal)
    goal, found = "at least as quick as the package's own parallel fit", _ratios(lines, "package", "fine")
    yield (goal, f"{median(found):.2f}×", median(found) >= 1) if found else _absent(goal, lines)


def _ratios(lines: Sequence[Line], contender: str, base: str = "loop") -> list[float]:
    """The seconds of a contender over those of another, by round."""
    sides = [
        {line["round"]: line["seconds"] for line in where(lines, kind="timed", contender=side)}
        for side in (contender, base)
    ]
    return [seconds / sides[1][number] for number, seconds in sides[0].items() if number in sides[1]]


def _absent(goal: str, lines: Sequence[Line]) -> Goal:
    """A goal beside the package, of which nothing was measured; perhaps as it is not installed."""
    has_none = find(lines, kind="package", installed=False) is not None
    return (goal, "the package is not installed", None) if has_none else missing(goal)


def _simulated(lines: Sequence[Line]) -> Iterator[Goal]:
    for slots in SLOTS:
        goal, line = f"{slots} slots, simulated: 0.8 of them as quick", find(lines, kind="slots", slots=slots)
        speed = line["work_s"] / line["seconds"] if line else 0.0
        yield (goal, f"{speed:.1f}×", speed >= 0.8 * slots) if line else missing(goal)
    goal = (
        "a slot for each of 1,000 tasks, simulated: at most 1.1 of the longest task, a start and two messages"
    )
    line = find(lines, kind="slots", slots=TASKS)
    ratio = line["seconds"] / (line["longest_s"] + line["overhead_s"]) if line else 0.0
    yield (goal, f"{ratio:.2f}×", ratio <= 1.1) if line else missing(goal)


def _sent(lines: Sequence[Line]) -> Iterator[Goal]:
    for grain in ("fine", "coarse"):
        goal = f"{grain} tasks: 8× smaller than with lists of ids in JSON"
        line = find(lines, kind="payload", grain=grain)
        ratio = line["training_ids_bytes"] / line["bytes"] if line else 0.0
        yield (goal, f"{ratio:.1f}×", ratio >= 8) if line else missing(goal)
    goal, mine = "what is shared comes to each worker once", where(lines, kind="payload")
    yield _once(goal, mine) if mine else missing(goal)


def _once(goal: str, lines: Sequence[Line]) -> Goal:
    copies, processes = (sum(line[key] for line in lines) for key in ("copies", "processes"))
    return goal, f"{copies} times to {processes} workers", copies == processes


def _billed(lines: Sequence[Line]) -> Iterator[Goal]:
    goal, mine = "simulated bills are the sum of durations times memory, exactly", where(lines, kind="bill")
    equal = sum(line["warm_ms"] == line["by_hand_ms"] for line in mine)
    yield (goal, f"{equal} of {len(mine)}", equal == len(mine)) if mine else missing(goal)
    goal = "a function for each task, simulated: coarse tasks have fewer cold starts and take longer"
    pairs = [
        (line, other)
        for line in where(mine, grain="fine", cap=CAPS[0])
        if (other := find(mine, grain="coarse", cap=CAPS[0], memory_mb=line["memory_mb"]))
    ]
    right = sum(
        other["cold_starts"] < line["cold_starts"] and other["seconds"] > line["seconds"]
        for line, other in pairs
    )
    yield (goal, f"at {right} of {len(pairs)} memory sizes", right == len(pairs)) if pairs else missing(goal)


def _peer(lines: Sequence[Line]) -> Iterator[Goal]:
    goal = "thetas, standard errors and scores are the DoubleML package's to 1e-8: all models, two learners"
    mine = where(lines, kind="agreement")
    off = max((line["off"] for line in mine), default=0.0)
    is_whole = set(MODELS) <= {line["model"] for line in mine}
    yield (goal, f"{off:.0e} of {len(mine)} fits", off <= 1e-8) if is_whole else _absent(goal, lines)


def _times(lines: Sequence[Line]) -> Section:
    rows = []
    for contender, words in WORDS.items():
        mine = where(lines, kind="timed", contender=contender)
        if not mine:
            continue
        took = [line["seconds"] for line in mine]
        spread = f"{number(min(took))} to {number(max(took))}"
        ratios = _ratios(lines, contender)
        quick = times(1.0, median(ratios)) if ratios else "–"
        theta = f"{mine[0]['theta']:.4f} ({mine[0]['standard_error']:.4f})"
        rows.append([words, number(median(took)), spread, quick, theta])
    head = ["by", "seconds, median", "all rounds", "as quick as one process", "theta (standard error)"]
    return Section("Time on this machine", tables=[Table("", head, rows)])


def _coverage(lines: Sequence[Line]) -> Section:
    rows = [
        [line["model"], f"{line['covered']} of {line['samples']}", f"{line['width']:.3f}"]
        for line in where(lines, kind="coverage")
    ]
    head = ["model", "hold theta", "median width"]
    return Section("Coverage", tables=[Table("Intervals at 95 %", head, rows)])


def _slots(lines: Sequence[Line]) -> Section:
    rows = [
        [f"{line['slots']:,}", number(line["seconds"]), f"{line['work_s'] / line['seconds']:.1f}×"]
        for line in where(lines, kind="slots")
    ]
    head = ["slots", "seconds", "as quick as one"]
    return Section("More slots, simulated", tables=[Table("", head, rows)])


def _bytes(lines: Sequence[Line]) -> Section:
    rows = []
    for line in where(lines, kind="payload"):
        keys = ("bytes", "training_ids_bytes", "test_ids_bytes")
        rows.append(
            [
                f"{line['tasks']} {line['grain']}",
                *(f"{line[key] / line['tasks']:,.0f}" for key in keys),
                f"{line['shared_bytes']:,}",
            ]
        )
    head = ["tasks", "a task, bytes", "its training ids in JSON", "its test ids in JSON"]
    return Section("What is sent", tables=[Table("", [*head, "shared, to each worker"], rows)])


def _bills(lines: Sequence[Line]) -> Section:
    mine = where(lines, kind="bill")
    rows = [
        [
            line["grain"],
            f"{line['memory_mb']:,}",
            f"{line['cold_starts']:,}",
            number(line["seconds"]),
            f"{line['gb_seconds']:,.0f}",
            f"{line['usd']:.4f}",
        ]
        for line in where(mine, cap=CAPS[0])
    ]
    head = ["tasks", "memory, MB", "cold starts", "seconds", "GB-seconds", "USD"]
    table = Table(f"{CAPS[0]:,} instances at most", head, rows)
    return Section("The bill, simulated", plots=[*_frontier(mine)], tables=[table])


def _frontier(lines: Sequence[Line]) -> Iterator[Plot]:
    """Cost over time by memory, up to that of a full core: more is only dearer."""
    found = [line for line in lines if line["memory_mb"] <= CORE_MB]
    if found:
        panels = {
            f"{cap:,} instances at most": {
                f"{grain} tasks": [
                    (line["seconds"], line["usd"]) for line in where(found, cap=cap, grain=grain)
                ]
                for grain in ("fine", "coarse")
            }
            for cap in CAPS
        }
        figure = charts.curves(panels, ("seconds until all are done", "USD"), log_x=True)
        title = f"Cost over time of all tasks, from {MEMORIES_MB[0]} MB of memory to that of a full core"
        yield Plot("bill", title, svg(figure))


def _words() -> Section:
    words = (
        "The case study has the size of the paper's, 5,099 units, 15 controls and 5 folds, with 10 "
        "repetitions and 16 trees in place of 100 and 500: 100 fits. Its data are simulated, with theta "
        "0.5: the paper's would have to be downloaded.",
        "Times are those of all of it, with the start of the workers, in turns; ratios are of the same "
        "round. The fork server runs before, and has scikit-learn imported. The package's processes start "
        "in its first round and stay for the others; it has the same learner, folds and data, but draws "
        "other trees, and computes losses and a sensitivity besides.",
        "A killed task's process ends when all of the task is computed, just before it returns: as late as "
        "it can be. Its task is computed again, and its process replaced.",
        "Slots beyond the cores are simulated: the planner of `map_tasks` on a virtual clock, with the "
        "measured durations of the 100 fits, ten times over. Processes start together, in 0.1 s, and a "
        "message takes 10 ms; nothing is slow, or dies.",
        "Bills are simulated, with the prices of AWS Lambda in 2021 and cold starts of 2 s in the mean. The "
        "same durations count 500 / 16 times, as a forest's fit takes a time that grows with its trees. The "
        "sum of durations is compared without cold starts, in whole milliseconds.",
        "Intervals are of linear learners and 300 units, the seeds from 0 on. The goal was fixed before; "
        "the same samples had been looked at when the models were written.",
        "Payloads are compared with lists of the training ids, which the bitmaps are. Where these are all "
        "units that a task does not predict, lists of the test ids are enough, and four times as short.",
    )
    return Section("To keep in mind", words=words)
