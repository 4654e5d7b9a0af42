"""SAEF: step-ahead error feedback (arXiv 2008.05823, AAAI 2021): gradients where the residual leads.

Parts: `StepAhead` over a compressor, and steps are exchanged: `saef(density, fraction, average_every)`. A
fraction below 1 is its successor SA-PEF (2026).

The claims: gradients are taken nearer to the point that the analysis follows than error feedback takes them;
at equal bytes training is faster, with no loss at the end; and, of the successor, that on data which differ
between workers a step ahead warms up fastest and then stalls, which a fraction below 1 repairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from tweed.report.notes import Line, Notes
from tweed.systems import Headline, System
from tweed.systems.harness import simulated_training
from tweed.systems.harness.learning_rates import Grid, best_lr
from tweed.systems.harness.simulated_training import Cluster, Config
from tweed.systems.harness.tuning import Side, low_loss, together, trained, tuned
from tweed.systems.saef.contenders import (
    APART,
    BUDGET,
    EARLY,
    EXACT,
    FRACTIONS,
    MISMATCH,
    PARTITIONS,
    TWINS,
    federated,
)
from tweed.systems.saef.report import study

SEEDS = range(5)
TASK, WORKERS, BATCH, STEPS = "fashion-mnist", 4, 8, 320
GRID = Grid(0.03)
#: Steps over which the mismatch is measured; and of quick looks, on the digits.
NEAR, QUICK = 160, 40


def experiment(notes: Notes, quick: bool) -> None:
    """Mismatch, equal bytes, data that differ between workers; each side at its own best learning rate.

    Cost: some 25 minutes of one core; as many sides at a time as there are cores. Quick: seconds.
    """
    if quick:
        _mismatches(notes, ("EF, top 1 %", "SAEF, top 1 %, P = 20", EXACT), True)
        return
    tuned(notes, [*_budget(), *_stalls()])
    _mismatches(notes, tuple(MISMATCH), False)


def _budget() -> Iterator[Side]:
    for label, strategy in BUDGET.items():
        config = Config(TASK, strategy, STEPS, BATCH, GRID.first, 0, WORKERS)
        yield trained(f"equal bytes, {label}", {"part": "budget", "method": label}, config, GRID, SEEDS)


def _stalls() -> Iterator[Side]:
    for partition, grid in PARTITIONS.items():
        for fraction in FRACTIONS:
            facts = {"part": "stall", "partition": partition, "fraction": fraction}
            of = (1000, 8, grid.first, 0, 10, partition)
            config = Config("digits", federated(fraction), *of, falling=False, every=EARLY)
            yield trained(f"{partition}, fraction {fraction:g}", facts, config, grid, SEEDS, low_loss)


def _mismatches(notes: Notes, labels: Sequence[str], quick: bool) -> None:
    """Error feedback and its twins train at the rate that is best for error feedback."""
    task, steps, grid, seeds = (
        ("digits", QUICK, Grid(0.03, tries=1), SEEDS[:1]) if quick else (TASK, NEAR, GRID, SEEDS)
    )
    bases = [base for base in TWINS if base in labels]
    config = Config(task, MISMATCH[bases[0]], steps, BATCH, grid.first, 0, WORKERS, test_samples=2_500)
    sides = [
        trained(f"mismatch, {base}", {"part": "mismatch"}, replace(config, strategy=MISMATCH[base]), grid, ())
        for base in bases
    ]
    tuned(notes, sides, 1 if quick else None)
    jobs = []
    for label in labels:
        base = next(base for base in bases if label == base or label in TWINS[base])
        lr = best_lr(notes.lines, f"mismatch, {base}")
        assert lr is not None  # it was searched
        one = replace(config, strategy=MISMATCH[label], lr=lr)
        which = {"kind": "mismatch", "method": label}
        jobs += [(label, replace(one, seed=seed)) for seed in seeds if not notes.has(seed=seed, **which)]
    for line in together(_mismatch, jobs, 1 if quick else None):
        notes.log(f"mismatch of {line['method']}, seed {line['seed']}: {line['apart'][0]:.3g} at first")
        notes.add(line)


def followed(cluster: Cluster) -> Tensor:
    """`[numel]`, the mean over workers of where they would stand had the residuals been sent."""
    points = [worker.reference + worker.buffer.state.error for worker in cluster.workers.all]
    return torch.stack(points).mean(0)


def _mismatch(label: str, config: Config) -> Line:
    """Length of the difference between gradients at workers' points and that at the point that the analysis
    follows, a mean over two workers, beside the length of the latter."""
    apart: list[float] = []

    def watch(step: int, cluster: Cluster) -> None:
        if step % APART == 0 and step:
            there = cluster.gradient(followed(cluster))
            here = [cluster.gradient(worker.flat.values) for worker in cluster.workers.all[:2]]
            apart.append(sum(float((one - there).norm() / there.norm()) for one in here) / len(here))

    simulated_training.train(config, watch)
    return {"kind": "mismatch", "method": label, "lr": config.lr, "seed": config.seed, "apart": apart}


SYSTEM = System(
    "SAEF, step-ahead error feedback",
    "arXiv 2008.05823, AAAI 2021",
    "saef(0.05, fraction=1.0, average_every=20)",
    experiment,
    study,
    headline=Headline(
        "trains faster per epoch than error feedback, and ends as well",
        "accuracy {} from error feedback's; training loss {}",
        (
            "accuracy of SAEF at least that of EF",
            "training loss of EF over that of SAEF, mean over training: > 1",
        ),
        "Sparse updates where the last half point counts. The mismatch that it is to remove was larger "
        "with it.",
    ),
)
