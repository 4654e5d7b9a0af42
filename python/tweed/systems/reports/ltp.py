"""Goals, tables and plots of the experiment on LTP. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tweed.experiments.notes import Line, differences, find, values, where
from tweed.report import charts, comparison
from tweed.report.comparison import Goal, goals, missing
from tweed.report.plots import svg
from tweed.report.study import Plot, Section, Table

WORKERS = 8
LOSSES = ("0", "0.01", "0.1", "1", "3")
ROUND_TRIPS_MS = ("0.1", "1", "40")
OURS = "ltp"
#: Classic: one connection per pair of ranks. Beside them four, as tweed has by itself.
SIDES = (OURS, "reno", "cubic", "bbr", "cubic ×4", "bbr ×4")


@dataclass(frozen=True, slots=True)
class Place:
    """A network to exchange over. `loss` in percent, as text; so is `round_trip_ms`."""

    loss: str
    round_trip_ms: str

    @property
    def name(self) -> str:
        """For people and notes."""
        return f"{self.loss} %, {self.round_trip_ms} ms"


GRID = [Place(loss, round_trip) for round_trip in ROUND_TRIPS_MS for loss in LOSSES]
SHALLOW = "incast"

#: A time counts only where so much arrived, or where the accuracy goal holds for what did.
ENOUGH = 0.98
POINTS = 0.5


def sections(lines: Sequence[Line]) -> list[Section]:
    """Goals, throughput, incast, what is learned, and what is to be kept in mind."""
    exchanges, runs = where(lines, kind="exchange"), where(lines, kind="training_run")
    parts = [Section("Goals", tables=[goals(verdicts(lines))]), _throughput(exchanges)]
    if find(exchanges, place=SHALLOW):
        parts.append(_incast(where(exchanges, place=SHALLOW)))
    if runs:
        parts.append(comparison.learned(runs))
    return [*parts, Section("To keep in mind", words=[*_words(lines), *comparison.failures(exchanges)])]


def verdicts(lines: Sequence[Line]) -> list[Goal]:
    """Every goal, and whether it was met."""
    found = where(lines, kind="exchange", failed=None)
    runs = where(lines, kind="training_run")
    return [*_immunity(found), _tail(found), *_headline(found), *_accuracy(runs)]


def _of(exchanges: Sequence[Line], loss: str, round_trip: str, side: str) -> Line | None:
    found = find(exchanges, place=f"{loss} %, {round_trip} ms", side=side)
    return found if found is not None and found["steps_s"] else None


def _delivered(line: Line) -> float:
    sent = line["contributed_bytes"]
    return float(1 - line["lost_bytes"] / sent) if sent else 1.0


def _immunity(exchanges: Sequence[Line]) -> Iterator[Goal]:
    for round_trip in ("0.1", "1", "40"):
        goal = f"exchange at up to 1 % loss within 1.2× of that without loss, {round_trip} ms"
        base = _of(exchanges, "0", round_trip, "ltp")
        lossy = [_of(exchanges, loss, round_trip, "ltp") for loss in ("0.01", "0.1", "1")]
        ratios = [_sync(line) / _sync(base) for line in lossy if line is not None and base is not None]
        yield (goal, f"{max(ratios):.2f}×", max(ratios) <= 1.2) if ratios else missing(goal)


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


def _headline(exchanges: Sequence[Line]) -> Iterator[Goal]:
    ours = _of(exchanges, "3", "40", "ltp")
    for side, least in {"reno": 30, "cubic": 30, "bbr": None}.items():
        goal = f"throughput at 3 %, 40 ms over {side}: " + (f"at least {least}×" if least else "stated")
        theirs = _of(exchanges, "3", "40", side)
        if ours is None or theirs is None:
            yield missing(goal)
            continue
        factor = (comparison.speed(ours) or 0) / (comparison.speed(theirs) or 1)
        share = _delivered(ours)
        counts = share >= ENOUGH
        what = f"{factor:.1f}×, {share:.2%} delivered"
        met = None if least is None else counts and factor >= least
        yield goal, what if counts else f"{what}: too little", met


def _accuracy(runs: Sequence[Line]) -> Iterator[Goal]:
    for task in values(runs, "task"):
        for variant in ("ltp", "lost is returned", "lost is dropped"):
            goal = f"{task}, {variant}: accuracy within {POINTS} points of the reliable run"
            mine, base = (where(runs, task=task, variant=name) for name in (variant, "reliable"))
            points = differences(mine, base)
            if not points:
                yield missing(goal)
                continue
            found = statistics.fmean(points)
            lost = statistics.fmean(line["lost"] for line in mine if find(base, seed=line["seed"]))
            yield goal, f"{found:+.2f} over {len(points)} seeds, {lost:.1%} lost", found >= -POINTS


def _throughput(exchanges: Sequence[Line]) -> Section:
    there = [place.name for place in GRID if find(exchanges, place=place.name)]
    panels = {}
    for round_trip in ROUND_TRIPS_MS:
        names = [Place(loss, round_trip).name for loss in LOSSES]
        if any(name in there for name in names):
            panels[f"round trip {round_trip} ms"] = {
                label: [_speed(find(exchanges, place=name, side=label)) for name in names] for label in SIDES
            }
    plots = []
    if panels:
        figure = charts.over_conditions(panels, LOSSES, ("packets lost (%)", "samples per second"))
        plots.append(Plot("throughput", "Training throughput over loss, per round trip", svg(figure)))
    tables = [make(exchanges, there, SIDES) for make in (comparison.speeds, comparison.tails)]
    tables.append(comparison.exchanges(exchanges, there, OURS))
    words = ["Rows are packets lost, and the round trip. ×4: four connections per pair of ranks, else one."]
    return Section("Throughput", words, plots, tables)


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
