"""Time to accuracy: what a side takes to the accuracy that the peer reaches, from lines of notes. Pure.

The target is what DDP reaches in the end with every seed, or so much `below` that, as a share of all samples.
A side has reached it at its first evaluation with at least that. The steps that this takes come from whole
trainings over one rate, the seconds per step from timing all sides in turns at each; their product is the
time. Where models differ by design, the seconds that making them one takes are added.
"""

from __future__ import annotations

import operator
import statistics
from collections.abc import Iterable, Mapping, Sequence

from tweed.report.notes import Line, find, where

#: Sides by their names in notes: what computing alone takes, and the peer that sets the target.
ALONE, DDP = "computing alone", "DDP on Gloo"


def trainings(lines: Sequence[Line], side: str, rate: str | None = None) -> list[Line]:
    """Whole trainings of a side, one per seed: over `rate`, or over that which most were over."""
    found = where(lines, kind="training", side=side)
    rate = rate or statistics.mode(line["rate"] for line in found) if found else None
    return where(found, rate=rate)


def target(lines: Sequence[Line], below: float = 0.0) -> float | None:
    """The accuracy that counts as reached: what DDP reaches with every seed. None before DDP has trained."""
    reached = [float(line["curve"][-1][2]) for line in trainings(lines, DDP)]
    return min(reached) - below if reached else None


def step_s(lines: Sequence[Line], side: str, rate: str) -> float | None:
    """Seconds per step: the median over rounds. None if they were not timed."""
    line = find(lines, kind="step_times", side=side, rate=rate)
    return None if line is None else statistics.median(rounds_s(line))


def rounds_s(timed: Line) -> list[float]:
    """Seconds per step, by round."""
    return list(map(operator.truediv, timed["seconds"], timed["steps"]))


def possible(lines: Sequence[Line], rate: str) -> float | None:
    """DDP's time per step over that of computing alone: what could be gained at most with as many steps."""
    whole, alone = step_s(lines, DDP, rate), step_s(lines, ALONE, rate)
    return None if whole is None or alone is None else whole / alone


def times_to(lines: Sequence[Line], side: str, rate: str, below: float = 0.0) -> dict[int, float]:
    """Seconds of training to the target, by seed. Empty if a seed did not reach it."""
    goal, timed = target(lines, below), find(lines, kind="step_times", side=side, rate=rate)
    if goal is None or timed is None:
        return {}
    steps = steps_to(lines, side, goal)
    each_s, finish_s = statistics.median(rounds_s(timed)), float(timed["finish_s"])
    times = {seed: count * each_s + finish_s for seed, count in steps.items() if count is not None}
    return times if len(times) == len(steps) else {}


def time_to(lines: Sequence[Line], side: str, rate: str, below: float = 0.0) -> float | None:
    """Seconds of training to the target: the mean over seeds. None if a seed did not reach it."""
    times = times_to(lines, side, rate, below)
    return statistics.fmean(times.values()) if times else None


def steps_to(lines: Sequence[Line], side: str, accuracy: float) -> dict[int, int | None]:
    """The steps before the first evaluation with at least this accuracy, by seed; None: there was none."""
    return {
        line["seed"]: next((int(steps) for steps, _, got in line["curve"] if got >= accuracy), None)
        for line in trainings(lines, side)
    }


def ratios(parts: Mapping[int, float], wholes: Mapping[int, float]) -> list[float]:
    """The ratios of values of the same seed, for all seeds that both have."""
    return [parts[seed] / wholes[seed] for seed in parts if seed in wholes]


def gain(lines: Sequence[Line], side: str, rate: str, below: float = 0.0) -> float | None:
    """How many times sooner than DDP a side reaches the target: the geometric mean over seeds."""
    found = ratios(times_to(lines, DDP, rate, below), times_to(lines, side, rate, below))
    return statistics.geometric_mean(found) if found else None


def quickest(lines: Sequence[Line], sides: Iterable[str], rate: str, below: float = 0.0) -> dict[int, float]:
    """Seconds to the target by seed, of the side that is quickest over the other seeds: what is picked by a
    seed is not judged by it. Empty if no side reached it with two seeds or more."""
    reached = [times for side in sides if len(times := times_to(lines, side, rate, below)) > 1]
    if not reached:
        return {}

    def others(times: Mapping[int, float], seed: int) -> float:
        return statistics.fmean(time for other, time in times.items() if other != seed)

    return {seed: min(reached, key=lambda times: others(times, seed))[seed] for seed in reached[0]}
