"""Zeno (Xie, Koyejo, Gupta, ICML 2019) and Zeno++ (ICML 2020, arXiv 1903.07020): contributions are believed
by what they do to the loss on a few samples that the server trusts, so that most workers may be hostile.

Parts: a `Hub`, in step or asynchronous, and the aggregates `Zeno` and `ZenoPlusPlus`; momentum of workers is
that of their own optimizers, with differences exchanged. Ours on top: `ZenoPlusPlus(record=0.9)`, which
judges a sender by its mean.

The papers' claim: with 12 of 20 workers hostile, synchronous training keeps its accuracy where others do not;
with 6 of 10 that send ten times the opposite, asynchronous training converges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from tweed.aggregate import Aggregate, All, Each, FLTrust, Mean, Median, Zeno, ZenoPlusPlus
from tweed.collective import Hub
from tweed.report.notes import Line, Notes
from tweed.simulate.attacks import Attack, Noise
from tweed.strategy import Exchange, Strategy
from tweed.systems import Headline, System
from tweed.systems.harness import hub_training
from tweed.systems.harness.hub_training import Config, Devices
from tweed.systems.harness.learning_rates import Grid
from tweed.systems.harness.tuning import Side, beyond_guessing, tuned
from tweed.systems.zeno.contenders import ATTACKS, CLEAN, FLIP, HOSTILE, KRUM, LIARS, MEMBERS, SHOWN, WORKERS
from tweed.systems.zeno.report import study


@dataclass(frozen=True, slots=True)
class Setting:
    """A task and how long it is trained on."""

    task: str
    rounds: int
    contributions: int
    seeds: range
    grid: Grid
    test_samples: int = 2_500


FULL = Setting("fashion-mnist", 300, 3_000, range(5), Grid(0.1, 3.0))
QUICK = Setting("digits", 4, 12, range(1), Grid(0.1, tries=1), 180)


def experiment(notes: Notes, quick: bool) -> None:
    """Every rule against every attack, each pair at its best rate. Cost: half an hour of two cores."""
    setting = QUICK if quick else FULL
    tuned(notes, [*_in_step(setting), *_one_by_one(setting)], 1 if quick else None)


def _in_step(setting: Setting) -> Iterator[Side]:
    rules: dict[str, tuple[Exchange, Aggregate[Any]]] = {
        "mean": ("gradient", Mean()),
        "median": ("gradient", Median()),
        "Krum": ("gradient", KRUM),
        "Zeno": ("gradient", Zeno(HOSTILE)),
        "Zeno, momentum": ("difference", Zeno(HOSTILE, lr=1.0)),
        "mean, momentum": ("difference", Mean()),
    }
    for attack, sent in ATTACKS.items():
        for name, (exchange, rule) in rules.items():
            if name == "mean, momentum" and sent:  # it is what the rule with momentum is compared with
                continue
            strategy = Strategy(exchange, collective=Hub(0, All()), aggregate=rule)
            config = _config(setting, strategy, WORKERS, HOSTILE if sent else 0, sent)
            momentum = 0.9 if exchange == "difference" else 0.0
            facts = {"kind": "training", "mode": "in step", "rule": name, "attack": attack}
            yield _side(setting, facts, replace(config, updates=setting.rounds, momentum=momentum))


def _one_by_one(setting: Setting) -> Iterator[Side]:
    rules: dict[str, Aggregate[Any]] = {
        "mean": Mean(),
        "FLTrust": FLTrust(),
        "Zeno++": ZenoPlusPlus(),
        "Zeno++, record": ZenoPlusPlus(record=0.9),
    }
    for attack, sent in ((CLEAN, None), ("sign, tenfold", FLIP)):
        for name, rule in rules.items():
            strategy = Strategy(collective=Hub(0, Each()), aggregate=rule)
            config = _config(setting, strategy, MEMBERS, LIARS if sent else 0, sent)
            facts = {"kind": "training", "mode": "one by one", "rule": name, "attack": attack}
            yield _side(setting, facts, replace(config, updates=setting.contributions))


def _config(setting: Setting, strategy: Strategy, count: int, hostile: int, attack: Attack | None) -> Config:
    links = (1e9, 1e9)
    return Config(
        setting.task,
        strategy,
        seconds=20.0 * setting.rounds,
        batch=32,
        devices=Devices(count, task_s=(1.0, 2.0), up=links, down=links),
        partition="iid",
        every_s=10.0,
        hostile=hostile,
        attack=attack,
        test_samples=setting.test_samples,
        trusted=64,
    )


def _side(setting: Setting, facts: dict[str, Any], config: Config) -> Side:
    name = ", ".join(facts[key] for key in ("mode", "rule", "attack"))
    seeds = setting.seeds[:3] if facts["attack"] in SHOWN else setting.seeds
    facts = {**facts, "task": setting.task}
    return Side(name, facts, partial(_train, config), setting.grid, seeds, beyond_guessing)


def _train(config: Config, lr: float, seed: int) -> Line:
    rule = config.strategy.aggregate
    if config.strategy.exchange == "gradient":  # the hub's optimizer steps
        if isinstance(rule, Zeno):
            rule = replace(rule, lr=lr)
        elif isinstance(rule, ZenoPlusPlus):
            rule = replace(rule, lr=lr, rho=0.01 * lr)
        config = replace(config, server_lr=lr, strategy=replace(config.strategy, aggregate=rule))
    else:
        config = replace(config, lr=lr)
    attack = config.attack
    if isinstance(attack, Noise):
        attack = replace(attack, seed=seed)
    return asdict(hub_training.train(replace(config, seed=seed, attack=attack)))


SYSTEM = System(
    "Zeno and Zeno++: believed by what they do to the loss",
    "ICML 2019; ICML 2020, arXiv 1903.07020",
    "Strategy(collective=Hub(0, All()), aggregate=Zeno(12))",
    experiment,
    study,
    headline=Headline(
        "trains with a majority of hostile workers, 12 of 20",
        "{} from clean training when labels are flipped, {} when signs are; Zeno++ {}",
        (
            "in step, label: Zeno within 3 points of the mean without an attack",
            "in step, sign: Zeno within 3 points of the mean without an attack",
            "one by one, tenfold flips: Zeno++, record within 3 points of clean training",
        ),
        "More than half of the members may be hostile, and the hub has samples that it trusts.",
    ),
)
