"""SAEF: step-ahead error feedback (arXiv 2008.05823, AAAI 2021): gradients where the residual leads.

Parts: `StepAhead` over a compressor, and steps are exchanged: `saef(density, fraction, average_every)`. A
fraction below 1 is its successor SA-PEF (2026).

The claims: gradients are taken nearer to the point that the analysis follows than error feedback takes them;
at equal bytes training is faster, with no loss at the end; and, of the successor, that on data which differ
between workers a step ahead warms up fastest and then stalls, which a fraction below 1 repairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tweed.cadence import LocalSteps
from tweed.compress import ErrorFeedback, Sign, StepAhead, TopK
from tweed.experiments import simulated_training
from tweed.experiments.notes import Line, Notes, best_lr
from tweed.experiments.simulated_training import Cluster, Config
from tweed.recipes import saef
from tweed.report.study import Study
from tweed.strategy import Strategy
from tweed.systems import System
from tweed.systems.reports import saef as report
from tweed.systems.reports.saef import APART, DENSE, EF, EXACT, SAEF

SEEDS = (0, 1, 2)
RATES = (0.01, 0.03)
TASK, WORKERS, BATCH, STEPS = "fashion-mnist", 4, 8, 320

#: Equal bytes by the paper's count, values alone: 10 % against 5 % and the whole residual every 20 steps.
BUDGET = {
    DENSE: Strategy("step"),
    EF: Strategy("step", compress=ErrorFeedback(TopK(0.1))),
    SAEF: saef(0.05, 1.0, 20),
}
MISMATCH = {
    "EF, top 1 %": Strategy("step", compress=ErrorFeedback(TopK(0.01))),
    "SAEF, top 1 %, P = 20": saef(0.01, 1.0, 20),
    EXACT: saef(0.01, 1.0, 1),
    "EF, sign": Strategy("step", compress=ErrorFeedback(Sign(bidirectional=False))),
    "SAEF, sign, P = 20": Strategy("step", compress=StepAhead(Sign(bidirectional=False), 1.0, 20)),
}
FRACTIONS = (0.0, 0.5, 0.9, 1.0)
#: Data that differ between workers, and learning rates.
PARTITIONS = {"by_label": 0.01, "dirichlet:0.3": 0.003}


def federated(fraction: float) -> Strategy:
    """Rounds of five local steps, top 1 %, errors never averaged."""
    return Strategy("difference", LocalSteps(5), StepAhead(TopK(0.01), fraction))


def experiment(notes: Notes, quick: bool) -> None:
    """Mismatch, then equal bytes, then data that differ between workers. Cost: some 8 minutes on one core."""
    if quick:
        for label in ("EF, top 1 %", "SAEF, top 1 %, P = 20", EXACT):
            _mismatch(notes, label, "digits", 40)
        return
    for label in MISMATCH:
        _mismatch(notes, label, TASK, 160)
    for label in BUDGET:
        for lr in RATES:
            _budget(notes, label, lr, SEEDS[0])
        lr = best_lr(notes.lines, kind="budget", method=label, seed=SEEDS[0])
        for seed in SEEDS[1:]:
            _budget(notes, label, lr, seed)
    for partition in PARTITIONS:
        for seed in SEEDS[:2]:
            for fraction in FRACTIONS:
                _stall(notes, partition, fraction, seed)


def _budget(notes: Notes, label: str, lr: float, seed: int) -> None:
    which: dict[str, Any] = {"kind": "budget", "method": label, "lr": lr, "seed": seed}
    simulated_training.noted(notes, which, Config(TASK, BUDGET[label], STEPS, BATCH, lr, seed, WORKERS))


def followed(cluster: Cluster) -> Tensor:
    """`[numel]`, the mean over workers of where they would stand had the residuals been sent."""
    points = [worker.reference + worker.buffer.state.error for worker in cluster.workers.all]
    return torch.stack(points).mean(0)


def _mismatch(notes: Notes, label: str, task: str, steps: int) -> None:
    """Length of the difference between gradients at workers' points and that at the point that the analysis
    follows, a mean over two workers, beside the length of the latter."""
    if notes.has(kind="mismatch", method=label):
        return
    apart: list[float] = []

    def watch(step: int, cluster: Cluster) -> None:
        if step % APART == 0 and step:
            there = cluster.gradient(followed(cluster))
            here = [cluster.gradient(worker.flat.values) for worker in cluster.workers.all[:2]]
            apart.append(sum(float((one - there).norm() / there.norm()) for one in here) / len(here))

    config = Config(task, MISMATCH[label], steps, BATCH, 0.01, 0, WORKERS, test_samples=250)
    outcome = simulated_training.train(config, watch)
    notes.log(f"mismatch of {label}: {apart[0]:.3g} at first")
    notes.add({"kind": "mismatch", "method": label, "apart": apart, "losses": outcome.losses})


def _stall(notes: Notes, partition: str, fraction: float, seed: int) -> None:
    which = {"kind": "stall", "partition": partition, "fraction": fraction, "seed": seed}
    if notes.has(**which):
        return
    curve: list[float] = []

    def watch(step: int, cluster: Cluster) -> None:
        if step % 50 == 0:
            curve.append(cluster.score(cluster.workers.average())[0])

    of = (1000, 8, PARTITIONS[partition], seed, 10, partition)
    outcome = simulated_training.train(Config("digits", federated(fraction), *of, falling=False), watch)
    curve.append(outcome.test_loss if outcome.test_loss is not None else float("inf"))
    notes.log(f"{partition}, fraction {fraction}, seed {seed}: test loss {curve[-1]:.3f}")
    notes.add(which | {"curve": curve, "accuracy": outcome.accuracy})


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    lead = "Error feedback takes gradients where the model is, SAEF where it would be with the residual sent."
    return Study("SAEF: a step ahead by the residual", lead, report.sections(lines))


SYSTEM = System(
    "SAEF, step-ahead error feedback",
    "arXiv 2008.05823, AAAI 2021",
    "saef(0.05, fraction=1.0, average_every=20)",
    experiment,
    study,
)
