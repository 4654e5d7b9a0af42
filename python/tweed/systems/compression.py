"""Say less, less often: what compressors, memories and cadences bring on slow links, beside DDP on Gloo.

Ours, of all parts side by side. Four workers train the Fashion-MNIST network of `tweed train` over shaped
links, computing for real. Measured are the accuracy over steps of whole trainings, the time per step of all
sides in turns at each rate, and bytes; from those comes the time to the accuracy that DDP reaches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from tweed import testbed
from tweed.cadence import LocalSteps
from tweed.compress import Chain, Direct, ErrorFeedback, LowRank, Quantise, Sign, TopK
from tweed.named import named_strategy
from tweed.strategy import Strategy
from tweed.systems import compression_study, contest
from tweed.systems.base import Notes, System
from tweed.systems.compression_study import (
    ALONE,
    DDP,
    DILOCO,
    EVERY,
    FED,
    FEW,
    LADDER,
    LOCAL,
    OFF,
    SEARCH_SEED,
    SIGNED,
)
from tweed.systems.contest import Course, Entrant
from tweed.testbed import Network

WORKERS = 4
RATES = ("10mbit", "100mbit", "1gbit")
AUTO = "local 8, auto"
#: Where nothing that is compressed pays.
FASTEST = "10gbit"
#: Whole trainings of all seeds are over this one; that accuracy does not depend on it is shown with seed 0.
FAST = "1gbit"
SEEDS = (0, 1, 2)
#: Learning rates that every side is searched over, by the accuracy after so many steps with another seed.
LRS = (0.05, 0.1, 0.2)
SEARCHED = 128
LRS_ADAMW = (0.001, 0.002, 0.004)


def _few(density: float) -> Chain:
    """The largest numbers in 4 bits each, their places coded; the answer likewise."""
    return Chain(TopK(density), Quantise(bits=4, nearest=True), both_ways=True)


def _moved(every: int, compress: Any = None) -> Strategy:
    return Strategy("difference", LocalSteps(every), compress)


def _strategies() -> dict[str, tuple[Strategy, int]]:
    """By label: a strategy, and its period in steps."""
    return {
        EVERY: (Strategy(), 1),
        "8 bits": (Strategy(compress=ErrorFeedback(Quantise(bits=8, nearest=True))), 1),
        "sign": (Strategy(compress=ErrorFeedback(Sign())), 1),
        "top-k 1 %": (Strategy(compress=ErrorFeedback(TopK(0.01))), 1),
        "low rank 4": (Strategy(compress=ErrorFeedback(LowRank(4))), 1),
        "DCT": (named_strategy("dct(sparsity=0.99, life_span=64)"), 1),
        "CSER": (named_strategy("cser(ratio=256, reset_ratio=16, every=32)"), 32),
        "SAEF": (named_strategy("saef(density=0.01, average_every=32)"), 32),
        LOCAL: (_moved(8), 8),
        FEW: (_moved(8, Direct(_few(0.1))), 8),
        FED: (named_strategy("local_top_k(every=8, density=0.1)"), 8),
        "local 8, 4 bits, memory": (_moved(8, ErrorFeedback(Quantise(bits=4, nearest=True))), 8),
        SIGNED: (named_strategy("local_sign:8"), 8),
        "local 4, 4 bits, memory": (_moved(4, ErrorFeedback(Quantise(bits=4, nearest=True))), 4),
        "local 4, top-k 5 %, memory": (named_strategy("local_top_k(every=4, density=0.05)"), 4),
        AUTO: (named_strategy("auto(every=8)"), 8),
        DILOCO: (named_strategy("diloco(every=32)"), 32),
    }


#: What is special about a side: DiLoCo's inner optimizer, and the exchanges in which "auto" tries its ways.
_OTHERWISE: dict[str, dict[str, Any]] = {
    DILOCO: {"optimizer": "adamw", "lr": LRS_ADAMW[0]},
    AUTO: {"warm": 8 * 20},
}


def entrants() -> list[Entrant]:
    """All sides, peers first. `ALONE` exchanges nothing and is no side: it says what computing takes."""
    peers = [Entrant(ALONE, "alone"), Entrant(DDP, "ddp"), Entrant("DDP, PowerSGD", "powersgd", warm=4)]
    ours = [Entrant(label, how, period) for label, (how, period) in _strategies().items()]
    return peers + [replace(side, **_OTHERWISE.get(side.label, {})) for side in ours]


#: Sides that train in full at every rate with seed 0: the measured times beside the computed ones.
FULL = (DDP, "DDP, PowerSGD", LOCAL, SIGNED, DILOCO)
#: Except that DDP stops early at the slowest, where a step of it takes a second.
EARLY = 128


def experiment(notes: Notes, quick: bool) -> None:
    """Searches learning rates, trains, and times steps. Cost: some 35 minutes on two cores; quick: one."""
    testbed.preload("tweed.systems.contest", "tweed.train.tasks.fashion_mnist", "tweed.train.tasks.digits")
    sides = entrants()
    if quick:
        some = [side for side in sides if side.label in (ALONE, DDP, LADDER[-1])]
        course = Course("digits", batch=16, steps=64, every=8)
        _train(notes, some[1:], course, "100mbit")
        _race(notes, some, course, "100mbit", (0.2, 2))
        return
    for side in sides[1:]:
        _search(notes, side)
    tuned = [replace(side, lr=compression_study.best_lr(notes.lines, side.label, side.lr)) for side in sides]
    _race(notes, [_plain(EVERY), _plain(OFF)], Course(), FASTEST, (0.3, 40))
    first, *others = SEEDS
    _train(notes, tuned[1:], Course(seed=first), FAST)
    for rate in RATES:
        _race(notes, tuned, Course(), rate, (1.0, 4))
    for rate in RATES[:-1]:
        for side in [side for side in tuned if side.label in FULL]:
            slow = (side.label, rate) == (DDP, RATES[0])
            _train(notes, [side], Course(stop=EARLY if slow else None), rate)
    for seed in others:
        _train(notes, tuned[1:], Course(seed=seed), FAST)


def _plain(label: str) -> Entrant:
    """A side of the race that asks whether compression does harm where it does not pay."""
    return Entrant(label, named_strategy("auto" if label == OFF else "every_step"), warm=24)


def _search(notes: Notes, side: Entrant) -> None:
    for lr in LRS if side.optimizer == "sgd" else LRS_ADAMW:
        facts = {"kind": "search", "side": side.label, "lr": lr}
        if not notes.has(**facts):
            notes.tell(f"learning rate {lr:g}: {side.label}")
            course = Course(steps=SEARCHED, seed=SEARCH_SEED, every=0)
            learned = _ran(contest.learn, FAST, replace(side, lr=lr), course)
            notes.add(facts | {"accuracy": learned.curve[-1][2]})


def _train(notes: Notes, sides: Sequence[Entrant], course: Course, rate: str) -> None:
    for side in sides:
        facts = {"kind": "training", "rate": rate, "side": side.label, "seed": course.seed}
        if notes.has(**facts):
            continue
        notes.tell(f"{rate}, seed {course.seed}: {side.label}")
        learned = _ran(contest.learn, rate, side, course)
        notes.add(facts | {"lr": side.lr, "optimizer": side.optimizer, "how": _words(side)} | asdict(learned))


def _race(notes: Notes, sides: Sequence[Entrant], course: Course, rate: str, laps: tuple[float, int]) -> None:
    if notes.has(kind="race", rate=rate):
        return
    notes.tell(f"{rate}: all sides in turns")
    raced = _ran(contest.race, rate, sides, course, *laps)
    for side, laps_of in zip(sides, raced, strict=True):
        facts = {"kind": "race", "rate": rate, "side": side.label, "period": side.period}
        notes.add(facts | asdict(laps_of))


def _ran(work: Callable[..., Any], rate: str, *job: object) -> Any:
    """What rank 0 of `WORKERS` says of its work behind links of `rate`."""
    with (
        testbed.opened(Network.parse(f"rate={rate}"), WORKERS) as bed,
        testbed.Ranks(work, WORKERS, *job, backend="gloo", bed=bed) as ranks,
    ):
        return ranks.join()[0]


def _words(side: Entrant) -> str:
    return side.how if isinstance(side.how, str) else repr(side.how)


SYSTEM = System(
    "Say less, less often",
    "ours: all parts side by side",
    "compress, cadence",
    experiment,
    compression_study.study,
)
