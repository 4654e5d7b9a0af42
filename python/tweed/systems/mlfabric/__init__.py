"""MLfabric (arXiv 1907.00434, 2019): one layer owns all transfers of a training. It orders updates so that
none comes too late, sums them on the way, and keeps a copy of the server.

Parts: a `Hub` that commits after each gradient, the order `BoundedDelay`, the aggregate `DelayAdaptive`:
`mlfabric()`.

The paper's claim: up to 3 times quicker than training in step on clusters whose computers and links are
uneven and change. Its settings C1 to C3, N-static and N-dynamic are known by name only: what they are here is
ours (`simulate.disturbances`).

contenders         who is compared, and where
cluster_training   trainings on uneven clusters, on a virtual clock
order_quality      orders beside the best one
report             goals, tables and plots
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from tweed.order import BoundedDelay
from tweed.report.notes import Line, Notes
from tweed.strategy import Strategy
from tweed.systems import Headline, System
from tweed.systems.harness.learning_rates import SEARCH_SEED, Grid
from tweed.systems.harness.tuning import Side, tuned
from tweed.systems.mlfabric import cluster_training, order_quality
from tweed.systems.mlfabric.cluster_training import Config, Place
from tweed.systems.mlfabric.contenders import MAP, MEMBERS, MILD, SMALL, VARIANTS, VARIED, WIDE, contenders
from tweed.systems.mlfabric.report import study


@dataclass(frozen=True, slots=True)
class Setting:
    """What is trained, where, and how often."""

    base: Config
    places: tuple[Place, ...]
    seeds: range
    searched: tuple[int, ...]
    tries: int = 10


FULL = Setting(
    Config("fashion-mnist", SMALL, Strategy(), members=MEMBERS),
    (SMALL, WIDE, MILD, *MAP),
    range(10, 15),
    (SEARCH_SEED,),
)
QUICK = Setting(
    Config(
        "digits", SMALL, Strategy(), members=6, batch=8, targets=(0.3,), contributions=120, test_samples=250
    ),
    (SMALL, WIDE),
    range(10, 11),
    (SEARCH_SEED,),
    1,
)


def experiment(notes: Notes, quick: bool) -> None:
    """Every contender at every place, each at its best rate. Cost: 15 minutes of two cores."""
    setting = QUICK if quick else FULL
    if not notes.has(kind="order"):
        notes.add({"kind": "order", **order_quality.compared(20 if quick else 300, seed=1)})
        taken = sorted(order_quality.planning_s(100, seed) for seed in range(9))
        notes.add({"kind": "planning", "seconds": taken[len(taken) // 2]})
    tuned(notes, [*_sides(setting)], 1 if quick else None)


def _sides(setting: Setting) -> Iterator[Side]:
    for place in setting.places:
        for name, changes in contenders(place, setting.base.members):
            yield _side(setting, place, name, changes)
    plain = dict(contenders(SMALL, setting.base.members))
    for key, (name, variant) in VARIED.items():
        if name in plain:
            yield _side(setting, SMALL, key, {**plain[name], **VARIANTS[variant]})


def _side(setting: Setting, place: Place, name: str, changes: dict[str, Any]) -> Side:
    config = replace(setting.base, place=place, every_s=1.0 if place == MILD else 2.0, **changes)
    in_step = config.strategy.hub is None or config.strategy.hub.when is not None
    first = (0.4 if in_step else 0.02) * (1 - config.momentum)
    facts = {"kind": "training", "place": str(place), "name": name, "members": config.members}
    if isinstance(config.strategy.order, BoundedDelay):
        facts["bound"] = config.strategy.order.most
    run, grid = partial(_train, config), Grid(first, 1.5, setting.tries)
    return Side(f"{place}: {name}", facts, run, grid, setting.seeds, _score, setting.searched)


def _train(config: Config, lr: float, seed: int) -> Line:
    return asdict(cluster_training.train(replace(config, lr=lr, seed=seed)))


def _score(line: Line) -> float:
    """How soon it is at the target; else how near."""
    times = [*line["reached_s"].values()]
    return -float(max(times)) if times else float(line["accuracy"]) - 1e6


SYSTEM = System(
    "MLfabric: updates ordered, summed on the way, replicated",
    "arXiv 1907.00434, 2019",
    "mlfabric()",
    experiment,
    study,
    headline=Headline(
        "up to 3× as fast as a synchronous ring",
        "{} of a ring; {} of a ring with spare workers",
        ("transfers of 2 %: 3× ring", "transfers of 2 %: 1.2× the best with spare workers"),
        "Workers of uneven speed behind one server. A ring with spare workers, tuned, was as good.",
    ),
)
