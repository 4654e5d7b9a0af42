"""TEASQ-Fed (Jia, Liu, Zhou, Tian, Dong, Dou, arXiv 2312.15186, 2023): asynchronous federated learning in
which idle devices ask for tasks, and what crosses their links is sparse and quantised.

Parts: `Hub(tasks=..., when=Cache(...), model=...)`, `LocalSteps(proximal=...)`, `Weighted` by samples and
staleness, `Chain(TopK, Quantise)`, `Relaxing`: `teasq()`. Ours on top: devices send how far they have come,
not models, so that what is left out can be sent later (error feedback); models come whole, in 8 bits.

The paper's claim: up to 16.67 points more accuracy than FedAvg and its like, in up to half the time; labels
unevenly spread. Exact forms are from memory: the cache's mean has a weight per contribution here, by its own
delay; "as published" are differences on the way up and sparse models on the way down.

contenders   methods
tightening   how strongly may be compressed: a greedy search over ordered settings
report       goals, tables and plots
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial

from tweed.compress import ErrorFeedback
from tweed.recipes import teasq
from tweed.report.notes import Line, Notes, find
from tweed.systems import Headline, System
from tweed.systems.harness import hub_training
from tweed.systems.harness.hub_training import Config, Devices, reached_s
from tweed.systems.harness.learning_rates import SEARCH_SEED, Grid
from tweed.systems.harness.tuning import Side, tuned
from tweed.systems.teasq.contenders import LADDERS, STEPS, TARGET, TASKS, Contender, codec, contenders
from tweed.systems.teasq.report import study
from tweed.systems.teasq.tightening import Place, tighten

#: Commits of a trial of that search, how much accuracy it may lose, and what a learning rate is there.
TRIAL, TOLERANCE, RATE = 15, 0.02, 0.1


@dataclass(frozen=True, slots=True)
class Setting:
    """A task, how long it is trained on, and by whom."""

    task: str
    seconds: float
    seeds: range
    searched: tuple[int, ...]
    grid: Grid
    devices: Devices


FULL = Setting(
    "fashion-mnist", 600.0, range(10, 20), (SEARCH_SEED, SEARCH_SEED + 1), Grid(0.1, 2.0), Devices()
)
SLOW = Devices(10, up=(3_000.0, 30_000.0))
QUICK = Setting("digits", 10.0, range(10, 11), (SEARCH_SEED,), Grid(0.1, tries=1), SLOW)


def experiment(notes: Notes, quick: bool) -> None:
    """The schedule by its search, then every method at its best rate. Cost: 20 minutes of two cores."""
    setting = QUICK if quick else FULL
    if not notes.has(kind="schedule"):
        notes.add({"kind": "schedule", **_search(setting)})
    schedule = find(notes.lines, kind="schedule")
    assert schedule is not None  # it was added
    way = [tuple(place) for place in schedule["way"]]
    tuned(notes, [_side(setting, contender) for contender in contenders(way)], 1 if quick else None)


def _side(setting: Setting, contender: Contender) -> Side:
    strategy, share = contender.strategy, contender.share
    run = partial(_train, Config(setting.task, strategy, setting.seconds, share, devices=setting.devices))
    facts = {"kind": "training", "task": setting.task}
    seeds = setting.seeds[:5] if contender.few else setting.seeds
    return Side(contender.key, facts, run, setting.grid, seeds, _score, setting.searched)


def _train(config: Config, lr: float, seed: int) -> Line:
    return asdict(hub_training.train(replace(config, lr=lr, seed=seed)))


def _score(line: Line) -> float:
    """How soon it is at the target; else how near."""
    seconds = reached_s(line, TARGET)
    return float(line["accuracy"]) - 1e6 if seconds is None else -seconds


def _search(setting: Setting) -> Line:
    """The way of the greedy search from mild to strong: densities and bits, with the accuracies of trials."""
    seen: dict[Place, float] = {}

    def score(place: Place) -> float:
        strategy = replace(teasq(0, STEPS, TASKS), compress=ErrorFeedback(codec(place)))
        config = Config(setting.task, strategy, setting.seconds, lr=RATE, devices=setting.devices)
        line = asdict(hub_training.train(replace(config, seed=SEARCH_SEED, updates=TRIAL)))
        seen[place] = float(line["accuracy"])
        return seen[place]

    way = tighten([len(ladder) for ladder in LADDERS], score, TOLERANCE)
    words = [[LADDERS[0][a], LADDERS[1][b]] for a, b in way]
    return {"way": way, "settings": words, "accuracies": [seen[place] for place in way], "trials": len(seen)}


SYSTEM = System(
    "TEASQ-Fed: asynchronous federated learning on request, sparse and quantised",
    "arXiv 2312.15186, 2023",
    "teasq()",
    experiment,
    study,
    headline=Headline(
        "up to twice as fast, up to 16.67 points more accurate",
        "{} as fast as FedAvg to 70 %; {} at the same time",
        ("70% in at most 0.5 of FedAvg's time", "25 s after it is there, 16.67 points above FedAvg"),
        "Many devices with slow uplinks and data of their own.",
    ),
)
