"""The goals of the experiment on LTP, and whether they were met. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from tweed.report.study import Table
from tweed.systems import sections
from tweed.systems.base import Line

#: A time counts only where so much arrived, or where the accuracy goal holds for what did.
ENOUGH = 0.98
POINTS = 0.5

Verdict = tuple[str, str, bool | None]


def verdicts(lines: Sequence[Line]) -> Table:
    """A row per goal: what was wanted, what came out, met or not; a dash where nothing was measured."""
    races = [line for line in lines if line["kind"] == "race" and not line["failed"]]
    lessons = [line for line in lines if line["kind"] == "school"]
    found: list[Verdict] = [*_immunity(races), _tail(races), *_headline(races), *_accuracy(lessons)]
    rows = [[goal, what, {True: "met", False: "missed", None: "–"}[met]] for goal, what, met in found]
    return Table("", ["goal", "measured", ""], rows)


def _of(races: Sequence[Line], loss: str, round_trip: str, side: str) -> Line | None:
    found = sections.find(races, place=f"{loss} %, {round_trip} ms", side=side)
    return found if found is not None and found["steps_s"] else None


def _delivered(line: Line) -> float:
    sent = line["contributed_bytes"]
    return float(1 - line["lost_bytes"] / sent) if sent else 1.0


def _immunity(races: Sequence[Line]) -> Iterator[Verdict]:
    for round_trip in ("0.1", "1", "40"):
        goal = f"exchange at up to 1 % loss within 1.2× of that without loss, {round_trip} ms"
        base = _of(races, "0", round_trip, "ltp")
        lossy = [_of(races, loss, round_trip, "ltp") for loss in ("0.01", "0.1", "1")]
        ratios = [_sync(line) / _sync(base) for line in lossy if line is not None and base is not None]
        yield (goal, f"{max(ratios):.2f}×", max(ratios) <= 1.2) if ratios else (goal, "–", None)


def _sync(line: Line) -> float:
    return float(statistics.median(line["sync_s"]))


def _tail(races: Sequence[Line]) -> Verdict:
    goal = "incast with a shallow queue: p99/p50 of the step at most 1.5"
    line = sections.find(races, place="incast", side="ltp")
    if line is None or not line["steps_s"]:
        return goal, "–", None
    ratio = sections.quantile(line["steps_s"], 0.99) / sections.quantile(line["steps_s"], 0.5)
    others = [other for other in races if other["place"] == "incast" and other["side"] != "ltp"]
    beside = ", ".join(f"{other['side']} {_ratio(other):.2f}" for other in others if other["steps_s"])
    return goal, f"{ratio:.2f} ({beside})", ratio <= 1.5


def _ratio(line: Line) -> float:
    return sections.quantile(line["steps_s"], 0.99) / sections.quantile(line["steps_s"], 0.5)


def _headline(races: Sequence[Line]) -> Iterator[Verdict]:
    goals: dict[str, Callable[[float], bool] | None] = {
        "reno": lambda factor: factor >= 30,
        "cubic": lambda factor: factor >= 30,
        "bbr": None,
    }
    ours = _of(races, "3", "40", "ltp")
    for side, met in goals.items():
        goal = f"throughput at 3 %, 40 ms over {side}: " + ("at least 30×" if met else "stated")
        theirs = _of(races, "3", "40", side)
        if ours is None or theirs is None:
            yield goal, "–", None
            continue
        factor = (sections.speed(ours) or 0) / (sections.speed(theirs) or 1)
        share = _delivered(ours)
        counts = share >= ENOUGH
        said = f"{factor:.1f}×, {share:.2%} delivered"
        yield goal, said if counts else f"{said}: too little", None if met is None else counts and met(factor)


def _accuracy(lessons: Sequence[Line]) -> Iterator[Verdict]:
    for task in dict.fromkeys(line["task"] for line in lessons):
        for variant in ("ltp", "lost is returned", "lost is dropped"):
            goal = f"{task}, {variant}: accuracy within {POINTS} points of the reliable run"
            mine, base = (_by_seed(lessons, task, name) for name in (variant, "reliable"))
            seeds = [seed for seed in mine if seed in base]
            if not seeds:
                yield goal, "–", None
                continue
            points = 100 * statistics.fmean(mine[seed]["accuracy"] - base[seed]["accuracy"] for seed in seeds)
            lost = statistics.fmean(mine[seed]["lost"] for seed in seeds)
            yield goal, f"{points:+.2f} over {len(seeds)} seeds, {lost:.1%} lost", points >= -POINTS


def _by_seed(lessons: Sequence[Line], task: str, variant: str) -> dict[int, Line]:
    return {line["seed"]: line for line in lessons if line["task"] == task and line["variant"] == variant}
