"""Straggler-aware distributed learning (Ozfatura, Ulukus, Gunduz, Entropy 22(5), 2020, arXiv 2004.04948):
workers send what they have after each shard, instead of one message after all of them.

Parts: the cadence `ByShards` over a server, live in `exchange.coded_steps`; replicated shards and their codes
in `data.coding` (gradient codes, nested and hybrid ones, Lagrange codes on the unit circle), straggler models
and schemes in `data.coding.times`. Load and messages adapt: `data.coding.times.choose`.

The paper's claim: what slow workers did finish is not thrown away, and an iteration ends earlier; which
scheme is best depends on what a message costs. Here iterations are simulated, with the paper's stragglers,
and live ranks sleep as long as these.

contenders       live sides, and models of stragglers
shard_training   live ranks that sleep
report           goals and tables
"""

from __future__ import annotations

from itertools import product

import numpy as np

from tweed.data.coding import Lagrange
from tweed.data.coding.times import SCHEMES, Stragglers, choose, mean_of
from tweed.report.notes import Notes
from tweed.systems import Headline, System
from tweed.systems.straggler_messages.contenders import EVEN, LOAD, MODELS, SIDES, STRAGGLING, WORKERS
from tweed.systems.straggler_messages.report import study
from tweed.systems.straggler_messages.shard_training import Config, Digits, both_models, live

TRIALS = 4_000
#: What a message costs, as a share of the mean time for a shard.
COSTS = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0)
LOADS = (1, 2, 3, 5)
#: Half of the second model's seconds; and as long for all, whose mean is that.
SLOW, AS_FAST = Stragglers(0.005, 20.0), Stragglers(0.055, 1e9)


def experiment(notes: Notes, quick: bool) -> None:
    """Cost: ten minutes, most of them live ranks that sleep; quick: seconds."""
    trials = 40 if quick else TRIALS
    for (alpha, mu), scheme in product(MODELS, SCHEMES):
        _iteration(notes, "model", scheme, LOAD, Stragglers(alpha, mu), trials)
    alpha, mu = MODELS[0]
    for cost, scheme in product(COSTS, SCHEMES):
        message_s = cost * (alpha + 1 / mu)
        _iteration(notes, "cost", scheme, LOAD, Stragglers(alpha, mu, message_s), trials // 4, cost=cost)
    for (alpha, mu), cost in product(MODELS, COSTS[:2] if quick else COSTS):
        _choice(notes, Stragglers(alpha, mu, cost * (alpha + 1 / mu)), cost, trials // 10)
    for seed in range(2 if quick else 100):
        if not notes.has(kind="lagrange", seed=seed):
            notes.add({"kind": "lagrange", "seed": seed, "error": _lagrange(seed)})
    _live(notes, quick)


def _iteration(
    notes: Notes, kind: str, scheme: str, load: int, stragglers: Stragglers, trials: int, cost: float = 0.0
) -> None:
    facts = {"alpha": stragglers.alpha, "mu": stragglers.mu, "cost": cost, "scheme": scheme, "load": load}
    if not notes.has(kind=kind, **facts):
        found = mean_of(scheme, load, stragglers, WORKERS, trials)
        notes.add({"kind": kind, **facts, "seconds": found.seconds, "messages": found.messages})


def _choice(notes: Notes, stragglers: Stragglers, cost: float, trials: int) -> None:
    """What is chosen, beside every fixed scheme and load, in other iterations than those it was chosen by."""
    facts = {"alpha": stragglers.alpha, "mu": stragglers.mu, "cost": cost}
    if notes.has(kind="choice", **facts):
        return
    notes.log(f"choosing at alpha {stragglers.alpha:g}, mu {stragglers.mu:g}, message cost {cost:g}")
    scheme, load = choose(stragglers, WORKERS, LOADS)
    fixed = {
        f"{name}, load {each}": mean_of(name, each, stragglers, WORKERS, trials).seconds
        for name, each in product(SCHEMES, LOADS)
        if not name.endswith("95 %")
    }
    best = min(fixed, key=fixed.__getitem__)
    chosen = f"{scheme}, load {load}"
    notes.add(
        {"kind": "choice", **facts, "chosen": chosen, "best": best, "ratio": fixed[chosen] / fixed[best]}
    )


def _live(notes: Notes, quick: bool) -> None:
    sides = dict(list(SIDES.items())[2:4] if quick else SIDES.items())
    config = Config(SLOW, workers=3, steps=4) if quick else Config(SLOW)
    for seed in range(1 if quick else 3):
        live(notes, STRAGGLING, sides, config, seed)
    even = {} if quick else {side: SIDES[side] for side in list(SIDES)[:2]}
    for seed in range(3):
        live(notes, EVEN, even, Config(AS_FAST), seed)
    digits = Digits(workers=3, steps=4) if quick else Digits()
    for side in ("uncoded, messages",) if quick else ("uncoded, messages", "GC, messages"):
        both_models(notes, side, SIDES[side][0], digits)


def _lagrange(seed: int) -> float:
    """How far a gradient of least squares is off, beside its largest value; of random arrivals."""
    random = np.random.default_rng(seed)
    shards, point = random.normal(size=(WORKERS, 8, 5)), random.normal(size=5)
    code = Lagrange(WORKERS, LOAD * WORKERS)
    stored = code.encode(shards)
    which = random.permutation(code.points)[: code.needed].tolist()
    found = code.decode(which, np.stack([stored[at].T @ (stored[at] @ point) for at in which]))
    true = np.stack([shard.T @ (shard @ point) for shard in shards]).sum(axis=0)
    return float(np.abs(found - true).max() / np.abs(true).max())


SYSTEM = System(
    "Straggler-aware learning: several messages per worker",
    "Entropy 22(5), 2020, arXiv 2004.04948",
    "ByShards(load=3)",
    experiment,
    study,
    headline=Headline(
        "less time than with one message per worker; no figure in the abstract",
        "a step takes {} less with messages of a Lagrange code, live",
        ("LCC, messages: 30 % less time than LCC",),
        "Workers of uneven speed that must count in every step.",
    ),
)
