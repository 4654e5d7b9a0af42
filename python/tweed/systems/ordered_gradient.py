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

from dataclasses import replace

import numpy as np

from tweed.cadence import Moves, Ordered, ServerPolicy
from tweed.collective import Server
from tweed.data.problems import PROBLEMS, linear, network, robust
from tweed.experiments import descent
from tweed.experiments.descent import Options, broken, counts, descend, methods
from tweed.experiments.notes import Notes
from tweed.recipes import every_step, lag
from tweed.strategy import Strategy
from tweed.systems import System
from tweed.systems.reports.ordered_gradient import study
from tweed.testbed import Network

GOAL, LIMIT, SEEDS = 1e-8, 20_000, range(5)
#: Tried as windows of ordered transmission.
WINDOWS_S = (0.005, 0.02, 0.08, 0.32)
#: Accuracy whose price in messages is counted.
ACCURATE = 0.95
SLOW, LIVE = "rate=10mbit,rtt=10ms", descent.Live()


def experiment(notes: Notes, quick: bool) -> None:
    """Cost: some five minutes on one core, half of it live ranks; quick: less than one."""
    for name in list(PROBLEMS)[: 1 if quick else None]:
        for seed in SEEDS[: 1 if quick else None]:
            _uploads(notes, name, seed)
    _exactness(notes)
    _slope(notes, 300 if quick else 5_000)
    _channels(notes, quick)
    _network(notes, 20 if quick else 600)
    _live(notes, quick)


def _uploads(notes: Notes, name: str, seed: int) -> None:
    if notes.has(kind="uploads", problem=name, seed=seed, method="share 0.3"):
        return
    notes.log(f"messages to {GOAL:g}: {name}, seed {seed}")
    problem = PROBLEMS[name](seed)
    for label, method in methods(problem):
        found = descend(problem, method, GOAL, LIMIT)
        facts = {"kind": "uploads", "problem": name, "seed": seed, "method": label} | counts(found)
        notes.add(facts | {"gap": problem.gap(found.x)} | broken(method))


def _exactness(notes: Notes) -> None:
    if notes.has(kind="exact"):
        return
    problem = linear(9, 1.3)
    nothing = descent.in_order(problem, ServerPolicy(history=Moves(problem.rate, share=0.0)), descent.IDEAL)
    ours, theirs = (descend(problem, method, 0.0, 200).x for method in (nothing, descent.All(descent.IDEAL)))
    notes.add({"kind": "exact", "equal": bool(np.array_equal(ours, theirs)), "iterations": 200})


def _slope(notes: Notes, iterations: int) -> None:
    """The least squared gradient so far over iterations, on a problem that is not convex."""
    if notes.has(kind="slope", method="share 0.3"):
        return
    problem = robust(18, 1.3)
    for label, method in methods(problem):
        notes.log(f"robust regression: {label}")
        found = descend(problem, method, 0.0, iterations, Options(keep=True))
        facts = {"kind": "slope", "method": label} | descent.decay(found.gaps)
        notes.add(facts | {"uploads": found.uploads} | broken(method))


def _channels(notes: Notes, quick: bool) -> None:
    """Virtual seconds, waiting counted, over one channel; windows and disturbances."""
    if notes.has(kind="channel", done=True):
        return
    name = "linear, 1.1^m, M=20"
    problem = PROBLEMS[name](0)
    for where, window_s, label, method in descent.disturbed(problem, (0.02,) if quick else WINDOWS_S):
        found = descend(problem, method, GOAL, LIMIT, Options(compute_s=1e-3))
        facts = {"kind": "channel", "where": where, "window_s": window_s, "method": label, "problem": name}
        notes.add(facts | counts(found) | {"seconds": found.seconds} | broken(method))
    notes.add({"kind": "channel", "done": True})


#: Stochastic gradients: what is tried, by name.
VARIANTS: dict[str, tuple[str, Options]] = {
    "SGD": ("GD", Options()),
    **{name: (name, Options()) for name in ("LAG-WK", "history", "share 0.9", "share 0.3")},
    "SGD, momentum": ("GD", Options(momentum=0.7)),
    "share 0.3, momentum": ("share 0.3", Options(momentum=0.7)),
    "share 0.3, 8 bits": ("share 0.3", Options(bits=8)),
    "share 0.3, 8 bits, momentum": ("share 0.3", Options(bits=8, momentum=0.7)),
}


def _network(notes: Notes, iterations: int) -> None:
    for name, (label, options) in VARIANTS.items():
        if notes.has(kind="network", variant=name):
            continue
        notes.log(f"network on the digits: {name}")
        problem = network(ranks=10, batch=32, lr=0.3 * (1 - options.momentum))
        method, again = (dict(methods(problem))[label] for _ in range(2))
        found = descend(problem, method, 0.0, iterations, options)
        first = counts(descend(problem, again, 1 - ACCURATE, iterations, options))
        facts = {"kind": "network", "variant": name, "bits": options.bits or 32} | counts(found)
        facts |= {f"first_{key}": count for key, count in first.items()}
        notes.add(facts | {"accuracy": 1 - problem.gap(found.x)} | broken(method))


_SHARE, _HISTORY = ServerPolicy(share=0.9), ServerPolicy(history=Moves(LIVE.lr))
#: Ranks and strategy by name; a server is a rank of its own.
SIDES: dict[str, tuple[int, Strategy]] = {
    "server, all": (5, Strategy(collective=Server(0))),
    "server, share 0.9": (5, Strategy(cadence=Ordered(_SHARE, 0.02), collective=Server(0))),
    "server, history": (5, Strategy(cadence=Ordered(_HISTORY, 0.02), collective=Server(0))),
    "no server, LAG-WK": (4, lag(LIVE.lr, 4)),
    "no server, all": (4, every_step()),
}


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
    "ordered_gradient()",
    experiment,
    study,
)
