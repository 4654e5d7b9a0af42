"""Sides by the keys that notes have. Pure."""

from __future__ import annotations

from tweed.cadence import LocalSteps
from tweed.compress import ErrorFeedback, Sign, StepAhead, TopK
from tweed.recipes import saef
from tweed.strategy import Strategy
from tweed.systems.harness.learning_rates import Grid

DENSE, EF, SAEF = "dense", "EF, top 10 %", "SAEF, top 5 %, P = 20"
EXACT = "SAEF, top 1 %, P = 1"
#: Error feedback, and what is compared with it at its best learning rate.
TWINS = {"EF, top 1 %": ("SAEF, top 1 %, P = 20", EXACT), "EF, sign": ("SAEF, sign, P = 20",)}
#: Steps between two measurements of the mismatch: at every age of an average of errors over 20 steps.
APART = 7
#: Steps between two evaluations where data differ; the second of them counts as early.
EARLY = 50

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
#: Data that differ between workers, and where the search for a learning rate begins.
PARTITIONS = {"by_label": Grid(0.01), "dirichlet:0.3": Grid(0.003)}


def federated(fraction: float) -> Strategy:
    """Rounds of five local steps, top 1 %, errors never averaged."""
    return Strategy("difference", LocalSteps(5), StepAhead(TopK(0.01), fraction))
