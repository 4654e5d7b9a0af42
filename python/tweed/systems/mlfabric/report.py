"""Goals, tables and plots of the experiment on MLfabric. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from statistics import fmean

from tweed.report import charts
from tweed.report.comparison import Goal, goals, missing, number, of_ratios, rule, spread
from tweed.report.notes import Line, find, mean, values, where
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Study, Table
from tweed.systems.mlfabric.cluster_training import CLASS, SMOOTH, Place
from tweed.systems.mlfabric.contenders import (
    ASYNC,
    FEW_BITS,
    MAP,
    MILD,
    OURS,
    PACKED_RING,
    RING,
    SMALL,
    SPARE_SERVER,
    SPARES,
    SUMS,
    TREE,
    VARIED,
    WIDE,
)

#: The day since when the goals stand.
FIXED = "2026-11-24"
#: Updates that an order has to decide on, in so much time.
PLANNED, PLANNED_S = 100, 0.005


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    runs = where(lines, kind="training")
    parts = [Section("Goals", tables=[goals(_goals(lines), fixed=FIXED)])]
    parts += [_times(lines, place) for place in (SMALL, WIDE, MILD) if where(runs, place=str(place))]
    if where(runs, place=str(MAP[0])):
        parts.append(_map(lines))
    if where(runs, place=str(SMALL), name=OURS):
        parts.append(_delays(runs))
    lead = "30 workers on computers and links that are uneven and change: time to the same accuracy."
    return Study("MLfabric: who sends when, through whom", lead, [*parts, _words()])


def at(lines: Sequence[Line], place: Place, name: str) -> list[Line]:
    """Trainings of a contender at a place."""
    return where(lines, kind="training", place=str(place), name=name)


def best(lines: Sequence[Line], place: Place, names: Sequence[str]) -> str | None:
    """The contender, of `names`, which its search found quickest; None if none was searched."""
    score = {}
    for name in names:
        if found := where(lines, kind="search", side=f"{place}: {name}"):
            score[name] = max(-1e9 if line["score"] is None else line["score"] for line in found)
    return max(score, key=score.__getitem__, default=None)


def taken_s(line: Line) -> float:
    """Seconds to the target; who is not there counts as there at the end."""
    return float(max(line["reached_s"].values(), default=line["seconds"]))


def sooner(theirs: Sequence[Line], ours: Sequence[Line]) -> list[float]:
    """Times to the target, theirs over ours, of the same seed."""
    end = {line["seed"]: taken_s(line) for line in theirs}
    return [end[line["seed"]] / taken_s(line) for line in ours if line["seed"] in end]


def _rivals(lines: Sequence[Line], place: Place) -> list[str]:
    """All that ours is compared with."""
    names = values(where(lines, kind="training", place=str(place)), "name")
    return [name for name in names if name not in {OURS, SUMS, FEW_BITS, *VARIED}]


def _spares(lines: Sequence[Line], place: Place) -> list[str]:
    return [name for name in _rivals(lines, place) if name in {*SPARES.values(), SPARE_SERVER}]


def _goals(lines: Sequence[Line]) -> Iterator[Goal]:
    small, wide, mild = "transfers of 2 %", "transfers of 8 %", "C1, N-static, transfers of 2 %"
    for name in (RING, TREE):
        yield _against(lines, SMALL, f"{small}: 3× {name}", name, 3.0)
    spare = best(lines, SMALL, _spares(lines, SMALL))
    yield _against(lines, SMALL, f"{small}: 1.2× the best with spare workers", spare, 1.2)
    for name in (RING, ASYNC):
        yield _against(lines, WIDE, f"{wide}: 2× {name}", name, 2.0)
    spare = best(lines, WIDE, _spares(lines, WIDE))
    yield _against(lines, WIDE, f"{wide}: at least 0.95× the best with spare workers", spare, 0.95)
    yield _against(lines, WIDE, f"{wide}: in 8 bits 3× ring", RING, 3.0, FEW_BITS)
    yield _against(lines, WIDE, f"{wide}: in 8 bits 3× ring in 8 bits", PACKED_RING, 3.0, FEW_BITS)
    yield _against(lines, MILD, f"{mild}: 1.15× ring", RING, 1.15)
    rival = best(lines, MILD, _rivals(lines, MILD))
    yield _against(lines, MILD, f"{mild}: at least 0.95× the best", rival, 0.95)
    yield _bound(lines)
    yield from _orders(lines)


def _against(
    lines: Sequence[Line], place: Place, goal: str, name: str | None, least: float, ours: str = OURS
) -> Goal:
    if name is None:
        return missing(goal)
    theirs = at(lines, place, name)
    late = sum(not line["reached_s"] for line in theirs)
    words = f"; {late} of {len(theirs)} not there by the end, and counted as if" if late else ""
    which = "" if name in goal else f", {name}"
    return of_ratios(goal, sooner(theirs, at(lines, place, ours)), least, which + words)


def _bound(lines: Sequence[Line]) -> Goal:
    goal = "no update later than the bound, and nothing moved of what was dropped"
    mine = [line for line in where(lines, kind="training") if line["name"] == OURS]
    if not mine:
        return missing(goal)
    most, dropped = max(line["most_delay"] for line in mine), sum(line["dropped"] for line in mine)
    moved = max(line["payload"] - line["counted"] for line in mine)
    bound = mine[0]["bound"]
    words = f"{most} of {bound}; {dropped} dropped; at most {moved:g} more had begun to move than counted"
    return goal, words, most <= bound and moved <= mine[0]["members"]


def _orders(lines: Sequence[Line]) -> Iterator[Goal]:
    goal = "batches of up to 8: mean completion within 5 % of the best order, and better than first in"
    if found := find(lines, kind="order"):
        mine, theirs = found["bounded"], found["first in"]
        words = f"{mine['mean']:.3f}× the best, at most {mine['most']:.3f}×; first in {theirs['mean']:.2f}×"
        words += f", with {theirs['late']} too late; {found['batches']} batches"
        yield goal, words, mine["most"] <= 1.05 and mine["late"] == 0 and mine["mean"] < theirs["mean"]
    else:
        yield missing(goal)
    goal = f"the order decides on {PLANNED} updates within {1000 * PLANNED_S:g} ms"
    if found := find(lines, kind="planning"):
        yield goal, f"{1000 * found['seconds']:.1f} ms", found["seconds"] < PLANNED_S
    else:
        yield missing(goal)


def _times(lines: Sequence[Line], place: Place) -> Section:
    runs = where(lines, kind="training", place=str(place))
    rows = []
    for name in values(runs, "name"):
        mine = where(runs, name=name)
        there = sum(bool(line["reached_s"]) for line in mine)
        seconds = spread([taken_s(line) for line in mine], 0)
        cells = [f"{mine[0]['lr']:g}", f"{seconds}, {there} of {len(mine)}"]
        ratios = sooner(mine, at(lines, place, _beside(name)))
        cells.append(f"{fmean(ratios):.2f}×" if ratios and name != _beside(name) else "–")
        cells.append(number(fmean(line["counted"] / line["seconds"] for line in mine)))
        rows.append([name, *cells, number(mean(mine, "counted")), number(mean(mine, "delay"))])
    target = mean_target(runs)
    head = ["", "lr", f"seconds to {target:.0%}", "MLfabric is quicker", "gradients per second"]
    head += ["gradients", "delay"]
    title = f"{place.computers}, {place.network}: a transfer takes {place.transfer:.1%} of a step"
    return Section(title, tables=[Table("Contenders", head, rows)])


def _beside(name: str) -> str:
    """Which of ours a contender is compared with: the one of the same variant."""
    return f"{OURS}, {VARIED[name][1]}" if name in VARIED else OURS


def mean_target(runs: Sequence[Line]) -> float:
    """The accuracy whose time is compared."""
    return max((float(target) for line in runs for target in line["reached_s"]), default=0.0)


def _map(lines: Sequence[Line]) -> Section:
    places = sorted((SMALL, WIDE, *MAP), key=lambda place: place.transfer)
    names = [OURS, ASYNC, RING, *(name for name in _spares(lines, MAP[0]))]
    points, rows = {}, []
    for name in names:
        found = [(place.transfer, at(lines, place, name)) for place in places]
        points[name] = [(100 * share, fmean(map(taken_s, mine))) for share, mine in found if mine]
    for place in places:
        ours = at(lines, place, OURS)
        ratios = [sooner(at(lines, place, name), ours) for name in names[1:]]
        rows.append([f"{place.transfer:.1%}", *(f"{fmean(one):.2f}×" if one else "–" for one in ratios)])
    figure = charts.curves(
        {"C3, N-dynamic": points},
        ("transfer, percent of a step", "seconds to the target"),
        log_x=True,
        log_y=True,
    )
    table = Table("How much quicker MLfabric is, in the mean", ["transfer / step", *names[1:]], rows)
    plot = Plot("map", "Seconds to the target over the time of a transfer", svg(figure))
    words = ["Below 1× MLfabric is behind."]
    return Section("Over the time of a transfer", words, [plot], [table])


def _delays(runs: Sequence[Line]) -> Section:
    rows, shown = [], {}
    for place in (SMALL, WIDE, MILD):
        for name in (OURS, ASYNC):
            if mine := at(runs, place, name):
                cells = [number(mean(mine, key)) for key in ("delay", "deviation")]
                most = max(line["most_delay"] for line in mine)
                rows.append([f"{place}: {name}", *cells, str(most), number(mean(mine, "dropped"))])
    for name in (OURS, ASYNC):
        if counts := [line["delays"] for line in at(runs, SMALL, name)]:
            summed = map(sum, zip_longest(*counts, fillvalue=0))
            total = sum(map(sum, counts))
            shown[name] = [(CLASS * (low + 0.5), count / total) for low, count in enumerate(summed) if count]
    figure = charts.curves({f"{SMALL}": shown}, ("delay, commits", f"share, per {CLASS} commits"), log_y=True)
    plot = Plot("delays", "Delays of what was applied", svg(figure))
    head = ["", "mean delay", "standard deviation", "longest", "dropped"]
    return Section("Delays", [], [plot], [Table("In commits", head, rows)])


def _words() -> Section:
    words = (
        "The settings are ours, as the paper's are in no material that was at hand. A step takes a second "
        "and a pause of up to a tenth of it (C1). In C3 a pause of up to a whole step comes on top, and 3 "
        "of the 30 workers are slow: their steps, pauses among them, take four times as long; every 60 s "
        "these are others. N-static: 30 % of the workers' hosts have 40 % of their link, the server's has "
        "all. N-dynamic: every 5 s each host, the server's too, draws all, half or a quarter of its link, "
        "with 50, 30 and 20 %.",
        "The model has 51 thousand parameters, and learns Fashion-MNIST from 4 samples a step; how long it "
        "takes over a link is set by the ratio, and not by its size.",
        f"The target is reached when {SMOOTH} evaluations, 2 s apart (1 s in C1), have it in the mean. All "
        "take plain steps of SGD, without momentum; rows that end so have momentum 0.9, "
        "or 32 samples a step, and are compared with MLfabric in the same way.",
        "Each contender has the learning rate that a search with a seed of its own found best, by factors "
        "of 1.5, widened until the best lies inside; what is best is the time to the target. Of the numbers "
        "of spare workers goals take the one that its search found best. The target, the batch and the "
        "bound of MLfabric were chosen after trials with seeds 0 to 2.",
        rule(),
        "Ring and tree are timed by the executor that runs live, in virtual time, over hosts behind one "
        "switch; the tree is a double binary one in 100 pieces. Who is spared has computed in vain. With "
        "a server instead of a ring, what spare workers send counts in the next update.",
        "Gradients at a hub share its link, and models on their way down do, as a fluid. There are no "
        "latencies, and the server's own computing takes no time.",
    )
    return Section("To keep in mind", words=words)
