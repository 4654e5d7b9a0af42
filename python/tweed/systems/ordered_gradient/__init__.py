"""Ordered gradient (Chen, Blum, Sadler, SPAWC 2020): only the most informative workers send.

Parts: `cadence.Ordered` and `ServerPolicy` (timers, two tests, silence as knowledge), driven by
`exchange.ordered` over a server, by `simulate.ordered` under a virtual clock. Ours on top: the stop message
says how long the longest may be that is left out, which keeps the error bound whatever clocks do; and a timer
that ends.

The paper's claim: gradient descent's order of convergence with fewer messages, and in some cases far fewer
than the best methods before. The paper's problems are not public: these are made in the style of LAG's. The
experiment counts messages to a gap beside gradient descent and LAG, each at the learning rate at which it
needs fewest; with exact and stochastic gradients, disturbed channels and live ranks; and counts the waiting.

contenders   methods and live sides
descent      gradient descent in which ranks are silent now and then, simulated and live
descents     many of these as sides of a comparison
report       goals and tables
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from tweed.cadence import Moves, ServerPolicy
from tweed.data.problems import PROBLEMS, Problem, linear, network
from tweed.report.notes import Notes
from tweed.systems import Headline, System
from tweed.systems.harness.learning_rates import Grid
from tweed.systems.harness.tuning import Side, tuned
from tweed.systems.ordered_gradient import descent
from tweed.systems.ordered_gradient.contenders import EXACT, LIVE, NOISY, SIDES
from tweed.systems.ordered_gradient.descent import Method, Options, descend, methods
from tweed.systems.ordered_gradient.descents import few, to_goal
from tweed.systems.ordered_gradient.report import study
from tweed.testbed import Network

GOAL, SEEDS = 1e-8, range(5)
#: Seeds of searches; with stochastic gradients rates on the brink of divergence look best with few.
SEARCHED, SEARCHED_NOISY = range(100, 105), range(100, 120)
#: Learning rates in units of 1/L, and with stochastic gradients.
GRID, STOCHASTIC = Grid(1.0, 1.5, 12), Grid(0.4, 1.5, 12)
#: Cross entropy of held-out pictures whose price in messages is counted.
LEARNED = 0.15
UPLOADS = partial(few, "uploads")
#: Tried as windows of ordered transmission, on one channel that all share.
WINDOWS_S, SHARED = (0.005, 0.02, 0.08, 0.32), "linear, 1.1^m, M=20"
SLOW = "rate=10mbit,rtt=10ms"


def experiment(notes: Notes, quick: bool) -> None:
    """Cost: some ten minutes on one core, two of them live ranks; quick: less than one."""
    names, seeds = list(PROBLEMS)[: 1 if quick else None], SEEDS[:1]
    sides = [side for name in names for side in _messages(name)] + [*_noisy(), *_channels(quick)]
    few_each = [replace(side, seeds=seeds, searched=side.searched[: len(seeds)]) for side in sides]
    tuned(notes, few_each if quick else sides, 1)
    _exactness(notes)
    _live(notes, quick)


def _messages(name: str) -> Iterator[Side]:
    """Messages to the goal, with exact gradients."""
    for label, (method, _) in EXACT.items():
        facts = {"kind": "uploads", "problem": name, "method": label}
        run = to_goal(PROBLEMS[name], _method(method), GOAL)
        yield Side(f"{name}, {label}", facts, run, GRID, score=UPLOADS, searched=SEARCHED)


def _noisy() -> Iterator[Side]:
    """The sides that take stochastic gradients."""
    for label, (method, options) in NOISY.items():
        facts = {"kind": "network", "problem": "digits", "method": label}
        run = to_goal(_digits, _method(method), LEARNED, options)
        yield Side(f"digits, {label}", facts, run, STOCHASTIC, score=UPLOADS, searched=SEARCHED_NOISY)


def _digits(seed: int) -> Problem:
    return network(ranks=10, batch=16, lr=1.0, seed=seed)


def _method(label: str) -> Callable[[Problem], Method]:
    return lambda problem: dict(methods(problem))[label]


def _exactness(notes: Notes) -> None:
    if notes.has(kind="exact"):
        return
    problem = linear(9, 1.3)
    nothing = descent.in_order(problem, ServerPolicy(history=Moves(problem.rate, share=0.0)), descent.IDEAL)
    ours, theirs = (descend(problem, method, 0.0, 200).x for method in (nothing, descent.All(descent.IDEAL)))
    notes.add({"kind": "exact", "equal": bool(np.array_equal(ours, theirs)), "iterations": 200})


def _channels(quick: bool) -> Iterator[Side]:
    """Virtual seconds, waiting counted, over one channel; windows and disturbances."""
    for place, window_s, label, method in descent.disturbed((0.02,) if quick else WINDOWS_S):
        facts = {"kind": "channel", "where": place, "window_s": window_s, "method": label, "problem": SHARED}
        name = f"{SHARED}, {place}, {label}, {1000 * window_s:g} ms"
        run = to_goal(PROBLEMS[SHARED], method, GOAL, Options(compute_s=1e-3))
        yield Side(name, facts, run, GRID, score=partial(few, "seconds"), searched=SEARCHED)


def _live(notes: Notes, quick: bool) -> None:
    places = {"this host": None} if quick else {"this host": None, SLOW: Network.parse(SLOW)}
    live = replace(LIVE, steps=10) if quick else LIVE
    for place, links in places.items():
        for label, (ranks, strategy) in list(SIDES.items())[: 2 if quick else None]:
            if not notes.has(kind="live", place=place, side=label):
                notes.log(f"live, {place}: {label}")
                facts = {"kind": "live", "place": place, "side": label, "steps": live.steps, "workers": 4}
                notes.add(facts | descent.run_live(strategy, ranks, live, links))


SYSTEM = System(
    "Ordered gradient: only the most informative workers send",
    "Chen, Blum, Sadler, SPAWC 2020",
    "ordered_gradient(share=2)",
    experiment,
    study,
    headline=Headline(
        "large savings over the best methods, in some cases",
        "{} of LAG-WK's messages where ranks are uneven, {} where they are alike",
        (
            "share 2, uneven ranks: at most 1.1 × LAG-WK's messages; linear, 1.69^m, M=9",
            "share 2, ranks alike: at least 30 % fewer than LAG-WK; linear, 1.1^m, M=40",
        ),
        "Few messages count, such as on a shared radio channel.",
    ),
)
