"""Distributed double machine learning with a serverless architecture (Kurz, ICPE'21 Companion, arXiv
2101.04025): the fits of repeated cross-fitting as stateless tasks.

Parts: `map_tasks`, which loses no task with its worker; models, folds as bitmaps and random numbers by the
key of a fit in `workloads.double_ml`; a bill of serverless functions in its `bill`.

The paper's claim: all fits run at once as functions, so that an estimate takes about as long as one fit, and
memory trades time for cost. Here as many workers as cores run live, more slots and the bill are simulated
from the measured durations of fits.

contenders  what is compared
measured    what the experiment measures
simulated   slots and bills, from those durations
report      goals, tables and plot of it
"""

from __future__ import annotations

from tweed.report.notes import Notes
from tweed.systems import Headline, System
from tweed.systems.double_ml.contenders import CONTENDERS, MODELS, TASKS, WORKERS
from tweed.systems.double_ml.measured import (
    CaseStudy,
    agreement,
    coverage,
    equality,
    has_package,
    payloads,
    timed,
)
from tweed.systems.double_ml.report import study
from tweed.systems.double_ml.simulated import simulated
from tweed.testbed import preload

#: The case study, and a small one for bits and quick looks.
CASE = CaseStudy(units=5099, controls=15, trees=16, repetitions=10, rounds=5)
SMALL = CaseStudy(units=400, controls=6, trees=4, repetitions=2, rounds=1)


def experiment(notes: Notes, quick: bool) -> None:
    """Cost: seven minutes; quick: ten seconds."""
    preload(__name__)  # for workers, with scikit-learn
    equality(notes, SMALL, WORKERS[:2] if quick else WORKERS)
    coverage(notes, *((10, 100) if quick else (200, 300)))
    payloads(notes, CASE)
    if not notes.has(kind="package"):
        notes.add({"kind": "package", "installed": has_package()})
    if has_package():
        agreement(notes, MODELS[:1] if quick else MODELS)
    contenders = [name for name in CONTENDERS if name != "package" or (has_package() and not quick)]
    timed(notes, SMALL if quick else CASE, contenders)
    simulated(notes, 100 if quick else TASKS)


SYSTEM = System(
    "Double machine learning as tasks that may fail",
    "ICPE 2021 Companion, arXiv 2101.04025",
    "PLR(ml_l, ml_m).fit(sample, tasks=map_tasks)",
    experiment,
    study,
    headline=Headline(
        "all fits at once as serverless functions; memory trades time for cost",
        "{} as quick as one process on two cores; the same bits by any workers, with 5 % of the tasks killed",
        ("as many workers as cores: 0.8 of the slots as quick as one process",),
        "An effect and its interval from a thousand fits, on workers that may die.",
    ),
)
