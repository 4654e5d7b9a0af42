"""Learning fixed points of recurrent neural networks by reparameterizing the network model (Zhu, Rosenbaum,
Neural Computation 36(8), 2024, arXiv 2307.06732).

Parts: the network at rest, its solvers and the four rules in `workloads.fixed_points`. A rule's update is a
sum of outer products, so the exchange `factors` sends it as its factors where that is less.

The paper's claim: the reparameterised and the linearised rule learn where the gradient is unstable, in fewer
steps, and a linearised step needs no inverse.

contenders  what is compared
measured   what rules learn, and how long their steps take
report     goals and tables
"""

from __future__ import annotations

from tweed.report.notes import Line, Notes
from tweed.systems import Headline, System
from tweed.systems.fixed_points.contenders import AS_PUBLISHED, PUBLISHED, RATES, SIZES
from tweed.systems.fixed_points.measured import Linear, Pictures, step_times
from tweed.systems.fixed_points.report import study
from tweed.systems.harness.learning_rates import Grid
from tweed.systems.harness.tuning import together, tuned

SEEDS = range(5)
#: Where the search of each rule's learning rate begins.
FIRST = {"plain": 0.01, "linearised": 0.25, "variant": 0.1}
#: Rules of the linear task, where the variant is the linearised rule.
LEARNED = ("plain", "reparameterised", "linearised")
SMALL = Pictures("digits", 16.0, size=40, batch=64, steps=40)


def experiment(notes: Notes, quick: bool) -> None:
    """Cost: an hour of one core, for the gradient above all, half of it with two; quick: ten seconds."""
    pictures, seeds = (SMALL, SEEDS[:1]) if quick else (Pictures(), SEEDS)
    tries = 1 if quick else 6
    sides = [pictures.side(rule, Grid(rate, 2.5, tries), seeds) for rule, rate in FIRST.items()]
    tuned(notes, sides, 1 if quick else None)
    jobs = [
        (pictures, seed) for seed in seeds if not notes.has(kind="pictures", rule=AS_PUBLISHED, seed=seed)
    ]
    for line in together(_as_published, jobs, 1 if quick else None):
        notes.add(line)
    linear = Linear(40, 20, 50) if quick else Linear()
    for rule in LEARNED:
        for rate in RATES:
            linear.run(notes, rule, rate)
    for size, batch in SIZES[:1] if quick else SIZES:
        step_times(notes, size, batch, rounds=1 if quick else 11)


def _as_published(pictures: Pictures, seed: int) -> Line:
    """The linearised rule at the rate that was best in the paper."""
    facts = {"kind": "pictures", "rule": AS_PUBLISHED, "lr": PUBLISHED, "seed": seed}
    return {**facts, **pictures.run("linearised", PUBLISHED, seed)}


SYSTEM = System(
    "Fixed points: weights of recurrent networks learn by reparameterised rules",
    "Neural Computation 36(8), 2024, arXiv 2307.06732",
    'RateNetwork(size, "tanh", Linearised())',
    experiment,
    study,
    headline=Headline(
        "rules that step in the space of fixed points learn where the gradient is unstable",
        "MNIST, three epochs: {}; a step is {} as quick",
        (
            "MNIST, three epochs: the linearised at least 85 %",
            "N = 300: a step at least 1.5× as quick as equations, as in the paper's code",
        ),
        "Recurrent networks at rest, and equilibrium models whose gradients blow up.",
    ),
)
