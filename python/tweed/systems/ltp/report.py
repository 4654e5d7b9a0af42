"""Goals, tables and plots of the experiment on LTP. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from tweed.report import charts, comparison
from tweed.report.comparison import Goal, goals, missing, of_points, rule
from tweed.report.notes import Line, differences, find, values, where
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Study, Table
from tweed.systems.ltp.contenders import (
    GRID,
    LOSSES,
    NONE,
    OURS,
    PEERS,
    REORDERED,
    ROUND_TRIPS_MS,
    SERVERS,
    SHALLOW,
    SIDES,
    WORKERS,
    Place,
)

#: The day since when the goals stand.
FIXED = "2026-11-23"


#: What links lose or reorder, in a plot, where that is not its name in percent.
MARKS = {
    "3 % in bursts of 5": "3\n×5",
    "3 % in bursts of 20": "3\n×20",
    "10 % reordered": "re-\nordered",
}
#: A time counts only where so much arrived, or where the accuracy goal holds for what did.
ENOUGH = 0.98
POINTS = 0.5


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    lead = f"{WORKERS} workers push gradients to a server and get their average back: LTP beside kernel TCP."
    return Study("LTP: gradients do not wait for the last packet", lead, sections(lines))


def sections(lines: Sequence[Line]) -> list[Section]:
    """Goals, throughput, incast, what is learned, and what is to be kept in mind."""
    exchanges, runs = where(lines, kind="exchange"), where(lines, kind="training_run")
    parts = [Section("Goals", tables=[goals(verdicts(lines), fixed=FIXED)]), _throughput(exchanges)]
    if find(exchanges, place=SHALLOW):
        parts.append(_incast(where(exchanges, place=SHALLOW)))
    if runs:
        parts.append(comparison.learned(runs))
    return [*parts, Section("To keep in mind", words=[*_words(lines), *comparison.failures(exchanges)])]


def verdicts(lines: Sequence[Line]) -> list[Goal]:
    """Every goal, and whether it was met."""
    found = where(lines, kind="exchange", failed=None)
    runs = where(lines, kind="training_run")
    return [
        *_immunity(found),
        _beside_bbr(found),
        _without_loss(found),
        *_bad(found),
        _tail(found),
        *_accuracy(runs),
    ]


def _of(exchanges: Sequence[Line], place: Place, side: str) -> Line | None:
    found = find(exchanges, place=place.name, side=side)
    return found if found is not None and found["steps_s"] else None


def _delivered(line: Line) -> float:
    sent = line["contributed_bytes"]
    return float(1 - line["lost_bytes"] / sent) if sent else 1.0


def _immunity(exchanges: Sequence[Line]) -> Iterator[Goal]:
    for round_trip in sorted(ROUND_TRIPS_MS, key=float):
        goal = f"exchange at up to 1 % loss within 1.2× of that without loss, {round_trip} ms"
        base = _of(exchanges, Place(NONE, round_trip), OURS)
        lossy = [_of(exchanges, Place(loss, round_trip), OURS) for loss in ("0.1 %", "1 %")]
        ratios = [_sync(line) / _sync(base) for line in lossy if line is not None and base is not None]
        yield (goal, f"{max(ratios):.2f}×", max(ratios) <= 1.2) if ratios else missing(goal)


def _factors(exchanges: Sequence[Line], places: Sequence[Place], peer: str) -> dict[str, float]:
    """LTP's throughput over a peer's, by place, where both were measured and enough arrived."""
    found = {}
    for place in places:
        ours, theirs = (_of(exchanges, place, side) for side in (OURS, peer))
        if ours is not None and theirs is not None:
            counts = _delivered(ours) >= ENOUGH
            found[place.name] = counts * (comparison.speed(ours) or 0) / (comparison.speed(theirs) or 1)
    return found


def _at_least(goal: str, factors: Mapping[str, float], least: float) -> Goal:
    """Whether a factor is met in every place: how often it is, and where it is least."""
    if not factors:
        return missing(goal)
    worst = min(factors, key=lambda place: factors[place])
    met = sum(factor >= least for factor in factors.values())
    return goal, f"in {met} of {len(factors)}; least {factors[worst]:.2f}× ({worst})", met == len(factors)


def _beside_bbr(exchanges: Sequence[Line]) -> Goal:
    lossy = [place for place in GRID if place.loss not in (NONE, REORDERED)]
    goal = "throughput at least that of bbr in every cell above 0 %"
    return _at_least(goal, _factors(exchanges, lossy, "bbr"), 1.0)


def _without_loss(exchanges: Sequence[Line]) -> Goal:
    clean = [place for place in GRID if place.loss == NONE]
    factors = [_factors(exchanges, clean, peer) for peer in PEERS]
    least = {place: min(each.get(place, math.inf) for each in factors) for place in factors[0]}
    return _at_least("at 0 %, throughput at least 0.95× of the quickest single TCP stream", least, 0.95)


def _bad(exchanges: Sequence[Line]) -> Iterator[Goal]:
    place = Place("3 %")
    goal = "3 %, 40 ms: the step's 99th percentile at most half of bbr's"
    ours, bbr = (_of(exchanges, place, side) for side in (OURS, "bbr"))
    if ours is None or bbr is None:
        yield missing(goal)
    else:
        factor = comparison.quantile(bbr["steps_s"], 0.99) / comparison.quantile(ours["steps_s"], 0.99)
        yield goal, f"{factor:.2f}×, {_delivered(ours):.2%} delivered", factor >= 2
    for peer in ("reno", "cubic"):
        goal = f"3 %, 40 ms: throughput at least 20× {peer}'s"
        yield _at_least(goal, _factors(exchanges, [place], peer), 20)


def _sync(line: Line) -> float:
    return float(statistics.median(line["sync_s"]))


def _tail(exchanges: Sequence[Line]) -> Goal:
    goal = "incast with a shallow queue: p99/p50 of the step at most 1.5"
    line = find(exchanges, place="incast", side="ltp")
    if line is None or not line["steps_s"]:
        return missing(goal)
    ratio = _ratio(line)
    others = [other for other in exchanges if other["place"] == "incast" and other["side"] != "ltp"]
    beside = ", ".join(f"{other['side']} {_ratio(other):.2f}" for other in others if other["steps_s"])
    return goal, f"{ratio:.2f} ({beside})", ratio <= 1.5


def _ratio(line: Line) -> float:
    return comparison.quantile(line["steps_s"], 0.99) / comparison.quantile(line["steps_s"], 0.5)


def _accuracy(runs: Sequence[Line]) -> Iterator[Goal]:
    for task in values(runs, "task"):
        for variant in ("ltp", "lost is returned", "lost is dropped"):
            goal = f"{task}, {variant}: accuracy within {POINTS} points of the reliable run"
            mine, base = (where(runs, task=task, variant=name) for name in (variant, "reliable"))
            known = [line["lost"] for line in mine if find(base, seed=line["seed"])]
            lost = f", {statistics.fmean(known):.1%} lost" if known else ""
            goal, what, verdict = of_points(goal, differences(mine, base), -POINTS)
            yield goal, what + lost, verdict


def _throughput(exchanges: Sequence[Line]) -> Section:
    there = [place.name for place in GRID if find(exchanges, place=place.name)]
    plots = [_plot(exchanges, server) for server in SERVERS if any(server in name for name in there)]
    tables = [make(exchanges, there, tuple(SIDES)) for make in (comparison.speeds, comparison.tails)]
    tables.append(comparison.exchanges(exchanges, there, OURS))
    words = [
        f"{len(there)} of {len(GRID)} networks: what is lost, the round trip, the rate of the server's link."
    ]
    return Section("Throughput", words, plots, tables)


def _plot(exchanges: Sequence[Line], server: str) -> Plot:
    panels = {}
    for round_trip in sorted(ROUND_TRIPS_MS, key=float):
        found = {
            side: [
                _speed(find(exchanges, place=Place(loss, round_trip, server).name, side=side))
                for loss in LOSSES
            ]
            for side in SIDES
        }
        panels[f"round trip {round_trip} ms"] = found
    marks = [MARKS.get(loss, loss.removesuffix(" %")) for loss in LOSSES]
    figure = charts.over_conditions(panels, marks, ("packets lost (%; ×: in bursts)", "samples per second"))
    return Plot(
        f"throughput-{server}", f"Training throughput over loss, server at {server} Mbit/s", svg(figure)
    )


def _speed(line: Line | None) -> float | None:
    return None if line is None else comparison.speed(line)


def _incast(exchanges: Sequence[Line]) -> Section:
    steps = {line["side"]: line["steps_s"] for line in exchanges if line["steps_s"]}
    figure = charts.distributions(steps, "step time (s)")
    rows = []
    for label, taken in steps.items():
        half, most = comparison.quantile(taken, 0.5), comparison.quantile(taken, 0.99)
        rows.append([label, str(len(taken)), *map(comparison.number, (half, most, most / half))])
    table = Table("Step times", ["", "steps", "median (s)", "99th percentile (s)", "ratio"], rows)
    title = "Step times where eight senders meet a short queue"
    words = [f"{exchanges[0]['words']}, and no other loss than that of full queues."]
    return Section("Incast", words, [Plot("incast", title, svg(figure))], [table])


def _words(lines: Sequence[Line]) -> Iterator[str]:
    load = find(lines, kind="workload")
    if load is not None:
        yield (
            f"Gradients are as large as those of the {load['task']} model. Computing is a sleep of "
            f"{1000 * load['compute_s']:.1f} ms, what {load['batch']} samples took one process alone."
        )
    yield (
        "All sides of a row ran in the same processes over the same links, in turns; the first step of a "
        "turn is not counted, unless it took more than 2 s. Fewer than five steps are noted in the table."
    )
    yield (
        "The link bound is what all gradients take through the server's link in one direction, without "
        "headers; the way back can overlap with it, as the link carries both ways at once."
    )
    if run := find(lines, kind="training_run"):
        yield (
            f"Trainings: 4 workers and a server; {run['words']}. The reliable run is LTP that loses "
            "nothing, with the same seeds. Below the row ltp, transfers may end at 80 %, as in the paper. ÷ "
            "delivered: each value is divided by those who delivered it, else by all."
        )
        yield f"Of accuracy: {rule()}"
