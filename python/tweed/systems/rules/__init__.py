"""Rules for hostile contributions beside attacks: every rule against every attack.

Parts: all of `tweed.aggregate` that hold against a minority, behind a `Hub` in step, and all of
`tweed.simulate.attacks`. Sources are in the rules' docstrings.

What their papers claim, each for its own attacks: accuracy stays near that of training without hostile
workers. Here the worst attack counts, also those that are tuned to the rule; data are dealt out evenly, and
sorted by label.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from tweed.aggregate import All
from tweed.collective import Hub
from tweed.report.notes import Line, Notes
from tweed.simulate.attacks import SUITE, Alie, Attack, Ipm, Tuned
from tweed.strategy import Strategy
from tweed.systems import Headline, System
from tweed.systems.harness import hub_training
from tweed.systems.harness.hub_training import Config, Devices
from tweed.systems.harness.learning_rates import SEARCH_SEED, Grid
from tweed.systems.harness.tuning import Side, tuned
from tweed.systems.rules.contenders import CLEAN, HOSTILE, RULES, WORKERS, Rule
from tweed.systems.rules.report import study


@dataclass(frozen=True, slots=True)
class Setting:
    """How long is trained, and on which hands of data."""

    rounds: int
    seeds: range
    grid: Grid
    partitions: tuple[str, ...]
    rules: tuple[str, ...]


FULL = Setting(80, range(3), Grid(0.3, 3.0), ("iid", "by_label"), tuple(RULES))
QUICK = Setting(4, range(1), Grid(0.3, tries=1), ("iid",), ("mean", "median", "mixing, Krum"))


def experiment(notes: Notes, quick: bool) -> None:
    """Each rule at the rate that is best for it without an attack. Cost: fifteen minutes of two cores."""
    tuned(notes, list(_sides(QUICK if quick else FULL)), 1 if quick else None)


def _sides(setting: Setting) -> Iterator[Side]:
    for partition in setting.partitions:
        for name in setting.rules:
            facts = {"kind": "training", "rule": name, "partition": partition}
            run = partial(_trainings, setting, RULES[name], partition)
            yield Side(f"{name}, {partition}", facts, run, setting.grid, setting.seeds)


def _trainings(setting: Setting, rule: Rule, partition: str, lr: float, seed: int) -> Line:
    """Accuracy without an attack, and with each; a search looks at the first alone."""
    attacks: dict[str, Attack | None] = {CLEAN: None}
    if seed != SEARCH_SEED:
        attacks |= {**SUITE, "ALIE, tuned": Tuned(Alie(), rule), "IPM, tuned": Tuned(Ipm(), rule)}
    config = Config(
        "digits",
        Strategy(collective=Hub(0, All()), aggregate=rule),
        seconds=20.0 * setting.rounds,
        server_lr=lr,
        batch=16,
        devices=Devices(WORKERS, task_s=(1.0, 1.0), jitter=0.0, up=(1e9, 1e9), down=(1e9, 1e9)),
        partition=partition,
        every_s=10.0,
        seed=seed,
        updates=setting.rounds,
    )
    reached = {
        name: hub_training.train(replace(config, hostile=HOSTILE if attack else 0, attack=attack)).accuracy
        for name, attack in attacks.items()
    }
    return {"accuracy": reached[CLEAN], "attacks": reached}


SYSTEM = System(
    "Rules for hostile contributions, beside attacks",
    "see the rules' docstrings",
    "Strategy(aggregate=NearestNeighbourMixing(Krum(0.2), 0.2))",
    experiment,
    study,
    headline=Headline(
        "own comparison, no paper",
        "under the worst attack Krum reaches {} % behind bucketing, 12.6 % alone",
        ("sorted by label, worst attack: bucketing, Krum above Krum",),
        "A minority of members may be wrong or hostile.",
    ),
)
