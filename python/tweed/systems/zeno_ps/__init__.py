"""ZenoPS (Algorithms 15(7):233, 2022): workers take steps alone, skip layers and whole rounds, and go on from
what they have not sent (error reset); validators measure each layer of what comes by their own steps on
trusted samples; workers clip what they send and put noise on it.

Parts: a `Hub` in step, `LocalResidual(RandomTensors(...))`, the aggregate `ZenoPS` with two validators, and
`Hub(privacy=ClippedNoise(...))`.

The paper's claim: all of that works together. Its accuracies were not found: goals are from our sketches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from tweed.aggregate import Aggregate, All, Mean, Phocas, TrimmedMean, ZenoPS
from tweed.cadence import LocalSteps
from tweed.collective import Hub
from tweed.compress import ClippedNoise
from tweed.report.notes import Line, Notes
from tweed.simulate.attacks import HostileLayers
from tweed.strategy import Strategy
from tweed.systems import Headline, System
from tweed.systems.harness import hub_training
from tweed.systems.harness.hub_training import Config, Devices
from tweed.systems.harness.learning_rates import Grid
from tweed.systems.harness.tuning import Side, beyond_guessing, tuned
from tweed.systems.zeno_ps.contenders import (
    ATTACKS,
    CLEAN,
    FAST,
    HOSTILE,
    HUB,
    POOL,
    SHOWN,
    SKIPS,
    STEPS,
    VALIDATORS,
    WORKERS,
)
from tweed.systems.zeno_ps.report import study

#: Of the part on privacy: workers, their steps, and noise as a multiple of the clip length.
MANY, FEW_STEPS, NOISES = 64, 4, (0.0, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True, slots=True)
class Setting:
    """A task and how long it is trained on."""

    task: str
    rounds: int
    noisy_rounds: int
    seeds: range
    grid: Grid
    test_samples: int = 2_500
    trusted: int = 32


FULL = Setting("fashion-mnist", 60, 30, range(5), Grid(0.3))
QUICK = Setting("digits", 4, 2, range(1), Grid(0.3, tries=1), 180, 8)


def experiment(notes: Notes, quick: bool) -> None:
    """Every rule against every attack, and accuracy over epsilon, which takes the extra `privacy`. Cost:
    twenty minutes of two cores."""
    sides = [*_rules(QUICK), *_private(QUICK, 4)] if quick else [*_rules(FULL), *_private(FULL, MANY)]
    tuned(notes, sides, 1 if quick else None)


def _rules(setting: Setting) -> Iterator[Side]:
    rules: dict[str, Aggregate[Any]] = {
        "mean": Mean(),
        "trimmed mean": TrimmedMean(HOSTILE),
        "Phocas": Phocas(HOSTILE),
        "ZenoPS": ZenoPS(STEPS, validators=VALIDATORS),
    }
    for attack, sent in ATTACKS.items():
        for name, rule in rules.items():
            if not sent and name in ("trimmed mean", "Phocas"):
                continue
            strategy = Strategy("difference", LocalSteps(STEPS), SKIPS, collective=HUB, aggregate=rule)
            config = _config(setting, strategy, WORKERS)
            layers = HostileLayers(sent, HOSTILE) if sent else None
            yield _side(setting, name, attack, replace(config, layers=layers))
    plain = Strategy("difference", LocalSteps(STEPS), collective=HUB)
    whole = _config(setting, replace(plain, aggregate=rules["ZenoPS"]), WORKERS)
    yield _side(setting, "ZenoPS, nothing skipped", CLEAN, whole)
    alone = replace(_config(setting, plain, VALIDATORS), alone=True)
    yield _side(setting, "validators alone", CLEAN, alone)


def _private(setting: Setting, count: int) -> Iterator[Side]:
    for noise in NOISES:
        part = ClippedNoise(1.0, noise)
        strategy = Strategy("difference", LocalSteps(FEW_STEPS), collective=Hub(0, All(), privacy=part))
        config = replace(_config(setting, strategy, count), updates=setting.noisy_rounds)
        epsilon = None if setting is QUICK or not noise else part.epsilon(setting.noisy_rounds)
        facts = {"kind": "private", "noise": noise, "epsilon": epsilon, "task": setting.task}
        run = partial(_train, replace(config, lr=setting.grid.first))
        yield Side(f"noise {noise:g}", facts, run, setting.grid, setting.seeds, beyond_guessing)


def _config(setting: Setting, strategy: Strategy, count: int) -> Config:
    return Config(
        setting.task,
        strategy,
        seconds=20.0 * setting.rounds,
        batch=32,
        devices=Devices(count, task_s=(1.0, 2.0), up=FAST, down=FAST),
        partition="iid",
        every_s=10.0,
        test_samples=setting.test_samples,
        updates=setting.rounds,
        trusted=setting.trusted,
        pool=POOL,
        validators=VALIDATORS,
    )


def _side(setting: Setting, name: str, attack: str, config: Config) -> Side:
    facts = {"kind": "training", "rule": name, "attack": attack, "task": setting.task}
    seeds = setting.seeds[:3] if name in SHOWN else setting.seeds
    return Side(f"{name}, {attack}", facts, partial(_train, config), setting.grid, seeds, beyond_guessing)


def _train(config: Config, rate: float, seed: int) -> Line:
    """With noise the rate is the clip length; else the learning rate of workers and validators."""
    strategy, hub = config.strategy, config.strategy.hub
    assert hub is not None  # all sides have one
    if hub.privacy is not None:
        clip = replace(hub.privacy, clip=rate)
        config = replace(config, strategy=replace(strategy, collective=replace(hub, privacy=clip)))
    else:
        config = replace(config, lr=rate)
        if isinstance(rule := strategy.aggregate, ZenoPS):
            config = replace(config, strategy=replace(strategy, aggregate=replace(rule, lr=rate)))
    if config.layers is not None:
        config = replace(config, layers=replace(config.layers, seed=seed))
    return asdict(hub_training.train(replace(config, seed=seed)))


SYSTEM = System(
    "ZenoPS: error reset, validation and local privacy together",
    "Algorithms 15(7):233, 2022",
    "zeno_ps(skip_all=0.5, validators=2)",
    experiment,
    study,
    headline=Headline(
        "trains with error reset, validation and noise together",
        "{} from the mean without an attack, {} above the trimmed mean",
        (
            "sign, sixfold: ZenoPS within 1 point of the mean without an attack",
            "sign, sixfold: ZenoPS 1 point beyond the trimmed mean",
        ),
        "Hostile members, and privacy by noise at each worker.",
    ),
)
