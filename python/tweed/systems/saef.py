"""SAEF: step-ahead error feedback (arXiv 2008.05823, AAAI 2021): gradients from where the rest would lead.

Parts: `StepAhead` over a compressor, and steps are exchanged: `saef(density, fraction, average_every)`. A
fraction below 1 is its successor SA-PEF (2026).

The claims: gradients are taken nearer to the point that the analysis follows than error feedback takes them;
at equal bytes training is faster, with no loss at the end; and, of the successor, that on data which differ
between workers a step ahead warms up fastest and then stalls, which a fraction below 1 repairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from tweed.cadence import LocalSteps
from tweed.compress import ErrorFeedback, Sign, StepAhead, TopK
from tweed.recipes import saef
from tweed.report.study import Study
from tweed.strategy import Strategy
from tweed.systems import saef_report
from tweed.systems.base import Line, Notes, System
from tweed.systems.rehearsal import Rehearsal, Room, rehearse

SEEDS = (0, 1, 2)
RATES = (0.01, 0.03)
TASK, WORKERS, BATCH, STEPS = "fashion-mnist", 4, 8, 320

#: Equal bytes by the paper's count, values alone: 10 % against 5 % and all of the rest every 20 steps.
BUDGET = {
    "dense": Strategy("step"),
    "EF, top 10 %": Strategy("step", compress=ErrorFeedback(TopK(0.1))),
    "SAEF, top 5 %, P = 20": saef(0.05, 1.0, 20),
}
MISMATCH = {
    "EF, top 1 %": Strategy("step", compress=ErrorFeedback(TopK(0.01))),
    "SAEF, top 1 %, P = 20": saef(0.01, 1.0, 20),
    "SAEF, top 1 %, P = 1": saef(0.01, 1.0, 1),
    "EF, sign": Strategy("step", compress=ErrorFeedback(Sign(both_ways=False))),
    "SAEF, sign, P = 20": Strategy("step", compress=StepAhead(Sign(both_ways=False), 1.0, 20)),
}
FRACTIONS = (0.0, 0.5, 0.9, 1.0)
#: Data that differ between workers, and learning rates.
APART = {"by_label": 0.01, "dirichlet:0.3": 0.003}


def federated(fraction: float) -> Strategy:
    """Rounds of five local steps, top 1 %, errors never averaged."""
    return Strategy("difference", LocalSteps(5), StepAhead(TopK(0.01), fraction))


def experiment(notes: Notes, quick: bool) -> None:
    """Mismatch, then equal bytes, then data that differ between workers. Cost: some 8 minutes on one core."""
    if quick:
        for label in ("EF, top 1 %", "SAEF, top 1 %, P = 20", "SAEF, top 1 %, P = 1"):
            _measure_mismatch(notes, label, "digits", 40)
        return
    for label in MISMATCH:
        _measure_mismatch(notes, label, TASK, 160)
    for label in BUDGET:
        for rate in RATES:
            _train(notes, label, rate, SEEDS[0])
        rate = saef_report.best_rate(notes.lines, label)
        for seed in SEEDS[1:]:
            _train(notes, label, rate, seed)
    for partition in APART:
        for seed in SEEDS[:2]:
            for fraction in FRACTIONS:
                _stall(notes, partition, fraction, seed)


def _train(notes: Notes, label: str, lr: float, seed: int) -> None:
    which = {"kind": "budget", "method": label, "lr": lr, "seed": seed}
    if notes.has(**which):
        return
    outcome = rehearse(Rehearsal(TASK, BUDGET[label], STEPS, BATCH, lr, seed, WORKERS))
    notes.tell(f"{label}, lr {lr}, seed {seed}: {outcome.accuracy:.2%}")
    notes.add(which | asdict(outcome))


@dataclass(slots=True)
class Mismatch:
    """Measures how far gradients at workers' points are from the gradient at the point that analysis follows.

    Attributes:
      every: steps between two measurements.
      apart: by measurement, length of the difference, a mean over two workers, beside that of the gradient.
    """

    every: int
    apart: list[float]

    def __call__(self, step: int, room: Room) -> None:
        """To be called before each step."""
        if step % self.every == 0 and step:
            there = room.gradient(followed(room))
            here = [room.gradient(worker.flat.values) for worker in room.workers.all[:2]]
            self.apart.append(sum(float((one - there).norm() / there.norm()) for one in here) / len(here))


def followed(room: Room) -> Tensor:
    """`[numel]`, the mean over workers of where they would stand had all been said."""
    points = [worker.reference + worker.buffer.state.error for worker in room.workers.all]
    return torch.stack(points).mean(0)


def _measure_mismatch(notes: Notes, label: str, task: str, steps: int) -> None:
    if notes.has(kind="mismatch", method=label):
        return
    watch = Mismatch(saef_report.APART, [])
    lesson = Rehearsal(task, MISMATCH[label], steps, BATCH, 0.01, 0, WORKERS, test_samples=250)
    outcome = rehearse(lesson, watch)
    notes.tell(f"mismatch of {label}: {watch.apart[0]:.3g} at first")
    notes.add({"kind": "mismatch", "method": label, "apart": watch.apart, "losses": outcome.losses})


def _stall(notes: Notes, partition: str, fraction: float, seed: int) -> None:
    which = {"kind": "stall", "partition": partition, "fraction": fraction, "seed": seed}
    if notes.has(**which):
        return
    curve: list[float] = []

    def watch(step: int, room: Room) -> None:
        if step % 50 == 0:
            curve.append(room.score(room.workers.average())[0])

    lesson = Rehearsal(
        "digits", federated(fraction), 1000, 8, APART[partition], seed, 10, partition, falling=False
    )
    outcome = rehearse(lesson, watch)
    curve.append(outcome.test_loss if outcome.test_loss is not None else float("inf"))
    notes.tell(f"{partition}, fraction {fraction}, seed {seed}: test loss {curve[-1]:.3f}")
    notes.add(which | {"curve": curve, "accuracy": outcome.accuracy})


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    lead = "Error feedback takes gradients where the model is, SAEF where it would be had all been said."
    return Study("SAEF: a step ahead of what is left", lead, saef_report.sections(lines))


SYSTEM = System(
    "SAEF, step-ahead error feedback",
    "arXiv 2008.05823, AAAI 2021",
    "saef(0.05, fraction=1.0, average_every=20)",
    experiment,
    study,
)
