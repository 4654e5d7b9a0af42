"""Ordered gradient (Chen, Blum, Sadler, SPAWC 2020): only the most informative workers send.

Parts: `cadence.Ordered` and `ServerPolicy` (timers, two tests, silence as knowledge), driven by
`exchange.ordered` over a server, by `simulate.ordered` under a virtual clock. Ours on top: the stop message
says how long the longest may be that is left out, which keeps the error bound whatever clocks do; and a timer
that ends.

The paper's claim: gradient descent's order of convergence with fewer messages, and in some cases far fewer
than the best methods before. The paper's problems are not public: these are made in the style of LAG's. The
experiment counts messages to a gap of 1e-8 beside gradient descent and LAG, tries a network with stochastic
gradients, disturbed channels and live ranks, and counts the waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tweed.cadence import Moves, Ordered, ServerPolicy
from tweed.collective import Server
from tweed.data.problems import PROBLEMS, Problem, linear, network, robust
from tweed.experiments import descent
from tweed.experiments.descent import AIRS, IDEAL, SHARED, Method, Options, broken, descend, methods
from tweed.experiments.notes import Notes
from tweed.recipes import every_step, lag
from tweed.strategy import Strategy
from tweed.systems import System
from tweed.systems.reports.ordered_gradient import study
from tweed.testbed import Network, run_ranks

GOAL, LIMIT = 1e-8, 20_000
SEEDS = range(5)

COMPUTE_S = 1e-3


def experiment(notes: Notes, quick: bool) -> None:
    """Cost: some five minutes on one core, half of it live ranks; quick: less than one."""
    for name, make in list(PROBLEMS.items())[: 1 if quick else None]:
        for seed in SEEDS[: 1 if quick else None]:
            _uploads(notes, name, seed, make)
    _exactness(notes)
    _slope(notes, 300 if quick else 5_000)
    _channels(notes, quick)
    _network(notes, 20 if quick else 600)
    _live(notes, quick)


def _uploads(notes: Notes, name: str, seed: int, make: Callable[[int], Problem]) -> None:
    if notes.has(kind="uploads", problem=name, seed=seed, method="share 0.3"):
        return
    notes.log(f"messages to {GOAL:g}: {name}, seed {seed}")
    problem = make(seed)
    for label, method in methods(problem):
        found = descend(problem, method, GOAL, LIMIT)
        facts = {"kind": "uploads", "problem": name, "seed": seed, "method": label}
        facts |= {"uploads": found.uploads, "iterations": found.iterations, "gap": problem.gap(found.x)}
        notes.add(facts | broken(method))


def _exactness(notes: Notes) -> None:
    if notes.has(kind="exact"):
        return
    problem = linear(9, 1.3)
    nothing = ServerPolicy(history=Moves(problem.rate, share=0.0))
    ours = descend(problem, descent.in_order(problem, nothing, IDEAL), 0.0, 200)
    theirs = descend(problem, descent.All(IDEAL), 0.0, 200)
    notes.add({"kind": "exact", "equal": bool(np.array_equal(ours.x, theirs.x)), "iterations": 200})


def _slope(notes: Notes, iterations: int) -> None:
    """The least squared gradient so far over iterations, on a problem that is not convex."""
    if notes.has(kind="slope", method="share 0.3"):
        return
    problem = robust(18, 1.3)
    for label, method in methods(problem):
        notes.log(f"robust regression: {label}")
        found = descend(problem, method, 0.0, iterations, Options(keep=True))
        least = np.minimum.accumulate(found.gaps)
        at = np.unique(np.geomspace(10, iterations, 40).astype(int)) - 1
        fitted = np.polyfit(np.log(at + 1), np.log(np.maximum(least[at], 1e-300)), 1)[0]
        points = [[int(place) + 1, float(least[place])] for place in at]
        facts = {"kind": "slope", "method": label, "slope": float(fitted), "points": points}
        notes.add(facts | {"uploads": found.uploads} | broken(method))


WINDOWS_S = (0.005, 0.02, 0.08, 0.32)


def _channels(notes: Notes, quick: bool) -> None:
    """Virtual seconds, waiting counted, over one channel; windows and disturbances."""
    name = "linear, 1.1^m, M=20"
    if notes.has(kind="channel", done=True):
        return
    problem = PROBLEMS[name](0)
    options = Options(compute_s=COMPUTE_S)
    plain: list[tuple[str, Method]] = [
        ("GD", descent.All(SHARED)),
        ("LAG-WK", descent.Lag(problem.rate, 20, SHARED)),
    ]
    tried = [("one channel", 0.0, label, method) for label, method in plain]
    for where, air in AIRS.items():
        windows = (0.02,) if quick else WINDOWS_S
        for window_s in windows:
            policy = ServerPolicy(share=0.9)
            tried.append((where, window_s, "share 0.9", descent.in_order(problem, policy, air, window_s)))
    for where, window_s, label, method in tried:
        found = descend(problem, method, GOAL, LIMIT, options)
        facts = {"kind": "channel", "where": where, "window_s": window_s, "method": label, "problem": name}
        facts |= {"uploads": found.uploads, "iterations": found.iterations, "seconds": found.seconds}
        notes.add(facts | broken(method))
    notes.add({"kind": "channel", "done": True})


#: Stochastic gradients: what is tried, by name.
VARIANTS: dict[str, tuple[str, Options]] = {
    "SGD": ("GD", Options()),
    "LAG-WK": ("LAG-WK", Options()),
    "history": ("history", Options()),
    "share 0.9": ("share 0.9", Options()),
    "share 0.3": ("share 0.3", Options()),
    "SGD, momentum": ("GD", Options(momentum=0.7)),
    "share 0.3, momentum": ("share 0.3", Options(momentum=0.7)),
    "share 0.3, 8 bits": ("share 0.3", Options(bits=8)),
    "share 0.3, 8 bits, momentum": ("share 0.3", Options(bits=8, momentum=0.7)),
}


#: Accuracy whose price in messages is counted.
ACCURATE = 0.95


def _network(notes: Notes, iterations: int) -> None:
    for name, (label, options) in VARIANTS.items():
        if notes.has(kind="network", variant=name):
            continue
        notes.log(f"network on the digits: {name}")
        problem = network(ranks=10, batch=32, lr=0.3 * (1 - options.momentum))
        method = dict(methods(problem))[label]
        found = descend(problem, method, 0.0, iterations, options)
        first = descend(problem, dict(methods(problem))[label], 1 - ACCURATE, iterations, options)
        facts = {"kind": "network", "variant": name, "bits": options.bits or 32, "iterations": iterations}
        facts |= {"uploads": found.uploads, "accuracy": 1 - problem.gap(found.x)}
        facts |= {"first_uploads": first.uploads, "first_iterations": first.iterations}
        notes.add(facts | broken(method))


SLOW = "rate=10mbit,rtt=10ms"
LIVE = descent.Live()


def _sides() -> dict[str, tuple[int, Strategy]]:
    """Ranks and strategy by name; a server is a rank of its own."""
    share, history = ServerPolicy(share=0.9), ServerPolicy(history=Moves(LIVE.lr))
    return {
        "server, all": (5, Strategy(collective=Server(0))),
        "server, share 0.9": (5, Strategy(cadence=Ordered(share, 0.02), collective=Server(0))),
        "server, history": (5, Strategy(cadence=Ordered(history, 0.02), collective=Server(0))),
        "no server, LAG-WK": (4, lag(LIVE.lr, 4)),
        "no server, all": (4, every_step()),
    }


def _live(notes: Notes, quick: bool) -> None:
    places = {"this host": None} if quick else {"this host": None, SLOW: Network.parse(SLOW)}
    for place, links in places.items():
        for label, (ranks, strategy) in list(_sides().items())[: 2 if quick else None]:
            if notes.has(kind="live", place=place, side=label):
                continue
            notes.log(f"live, {place}: {label}")
            live = replace(LIVE, steps=10) if quick else LIVE
            seen = run_ranks(
                descent.train, ranks, strategy, live, backend="tweed", network=links, timeout=300
            )[0]
            notes.add(
                {"kind": "live", "place": place, "side": label, "steps": live.steps, "workers": 4} | seen
            )


SYSTEM = System(
    "Ordered gradient: only the most informative workers send",
    "Chen, Blum, Sadler, SPAWC 2020",
    "ordered_gradient()",
    experiment,
    study,
)
