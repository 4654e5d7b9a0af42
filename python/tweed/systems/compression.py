"""Send less, less often: what compressors, memories and cadences bring on slow links, beside DDP on Gloo.

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
from tweed.experiments import benchmark, training
from tweed.experiments.notes import Notes
from tweed.experiments.time_to_accuracy import ALONE, DDP
from tweed.experiments.training import Config, Method
from tweed.named import named_strategy
from tweed.strategy import Strategy
from tweed.systems import System
from tweed.systems.reports import compression as report
from tweed.systems.reports.compression import DILOCO, LADDER, LOCAL, SIGNED
from tweed.testbed import Network

WORKERS, TIMEOUT_S = 4, 7200.0  # seconds for one training
RATES = ("10mbit", "100mbit", "1gbit")
#: Where nothing that is compressed pays.
FASTEST = "10gbit"
#: Whole trainings of all seeds are over this one; that accuracy does not depend on it is shown with seed 0.
FAST = "1gbit"
SEEDS = (0, 1, 2)
#: Learning rates that every side is searched over, by the accuracy after so many steps with another seed.
LRS = (0.05, 0.1, 0.2)
SEARCHED = 128
LRS_ADAMW = (0.001, 0.002, 0.004)


def methods() -> list[Method]:
    """All sides, peers first. `ALONE` exchanges nothing and is no side: it shows what computing takes."""
    # The largest values in 4 bits each, their indices coded; the reply likewise.
    few = Chain(TopK(0.1), Quantise(bits=4, nearest=True), bidirectional=True)
    four_bits = ErrorFeedback(Quantise(bits=4, nearest=True))
    return [
        Method(ALONE, "alone"),
        Method(DDP, "ddp"),
        Method("DDP, PowerSGD", "powersgd", warm=4),
        Method(report.EVERY, Strategy()),
        Method("8 bits", Strategy(compress=ErrorFeedback(Quantise(bits=8, nearest=True)))),
        Method("sign", Strategy(compress=ErrorFeedback(Sign()))),
        Method("top-k 1 %", Strategy(compress=ErrorFeedback(TopK(0.01)))),
        Method("low rank 4", Strategy(compress=ErrorFeedback(LowRank(4)))),
        Method("DCT", named_strategy("dct(sparsity=0.99, life_span=64)")),
        Method("CSER", named_strategy("cser(ratio=256, reset_ratio=16, every=32)"), 32),
        Method("SAEF", named_strategy("saef(density=0.01, average_every=32)"), 32),
        Method(LOCAL, Strategy("difference", LocalSteps(8)), 8),
        Method(report.FEW, Strategy("difference", LocalSteps(8), Direct(few)), 8),
        Method(report.FED, named_strategy("local_top_k(every=8, density=0.1)"), 8),
        Method("local 8, 4 bits, memory", Strategy("difference", LocalSteps(8), four_bits), 8),
        Method(SIGNED, named_strategy("local_sign:8"), 8),
        Method("local 4, 4 bits, memory", Strategy("difference", LocalSteps(4), four_bits), 4),
        Method("local 4, top-k 5 %, memory", named_strategy("local_top_k(every=4, density=0.05)"), 4),
        # In its first exchanges "auto" tries what it may choose.
        Method("local 8, auto", named_strategy("auto(every=8)"), 8, warm=8 * 20),
        Method(DILOCO, named_strategy("diloco(every=32)"), 32, "adamw", LRS_ADAMW[0]),
    ]


#: Sides that train in full at every rate with seed 0: the measured times beside the computed ones.
FULL = (DDP, "DDP, PowerSGD", LOCAL, SIGNED, DILOCO)
#: Except that DDP stops early at the slowest, where a step of it takes a second.
EARLY = 128


def experiment(notes: Notes, quick: bool) -> None:
    """Searches learning rates, trains, and times steps. Cost: some 35 minutes on two cores; quick: one."""
    testbed.preload("tweed.experiments.training", "tweed.train.tasks.fashion_mnist")
    sides = methods()
    if quick:
        some = [side for side in sides if side.label in (ALONE, DDP, LADDER[-1])]
        config = Config("digits", batch=16, steps=64, every=8)
        _train(notes, some[1:], config, "100mbit")
        _time(notes, some, config, "100mbit", _rounds(2, 0.2))
        return
    for side in sides[1:]:
        _search(notes, side)
    tuned = [replace(side, lr=report.best_lr(notes.lines, side.label, side.lr)) for side in sides]
    # Does compression do harm where it does not pay?
    plain = [
        Method(report.EVERY, named_strategy("every_step"), warm=24),
        Method(report.OFF, named_strategy("auto"), warm=24),
    ]
    _time(notes, plain, Config(), FASTEST, _rounds(40, 0.3))
    first, *others = SEEDS
    _train(notes, tuned[1:], Config(seed=first), FAST)
    for rate in RATES:
        _time(notes, tuned, Config(), rate, _rounds(4, 1.0))
    for rate in RATES[:-1]:
        for side in [side for side in tuned if side.label in FULL]:
            slow = (side.label, rate) == (DDP, RATES[0])
            _train(notes, [side], Config(stop=EARLY if slow else None), rate)
    for seed in others:
        _train(notes, tuned[1:], Config(seed=seed), FAST)


def _rounds(count: int, seconds: float) -> benchmark.Config:
    """So many rounds of about so many seconds."""
    return benchmark.Config(count, count * seconds, least=1, most=1 << 30, warm=1)


def _search(notes: Notes, side: Method) -> None:
    for lr in LRS if side.optimizer == "sgd" else LRS_ADAMW:
        facts = {"kind": "search", "side": side.label, "lr": lr}
        if not notes.has(**facts):
            notes.log(f"learning rate {lr:g}: {side.label}")
            config = Config(steps=SEARCHED, seed=report.SEARCH_SEED, every=0)
            trained = _ran(training.train, FAST, replace(side, lr=lr), config)
            notes.add(facts | {"accuracy": trained.curve[-1][2]})


def _train(notes: Notes, sides: Sequence[Method], config: Config, rate: str) -> None:
    for side in sides:
        facts = {"kind": "training", "rate": rate, "side": side.label, "seed": config.seed}
        if not notes.has(**facts):
            notes.log(f"{rate}, seed {config.seed}: {side.label}")
            how = side.how if isinstance(side.how, str) else repr(side.how)
            facts |= {"lr": side.lr, "optimizer": side.optimizer, "how": how}
            notes.add(facts | asdict(_ran(training.train, rate, side, config)))


def _time(notes: Notes, sides: Sequence[Method], config: Config, rate: str, rounds: benchmark.Config) -> None:
    if notes.has(kind="step_times", rate=rate):
        return
    notes.log(f"{rate}: all sides in turns")
    for side, timed in zip(sides, _ran(training.time_steps, rate, sides, config, rounds), strict=True):
        facts = {"kind": "step_times", "rate": rate, "side": side.label, "period": side.period}
        notes.add(facts | asdict(timed))


def _ran(work: Callable[..., Any], rate: str, *job: object) -> Any:
    """What rank 0 of `WORKERS` returns of its work behind links of `rate`."""
    network = Network.parse(f"rate={rate}")
    return testbed.run_ranks(work, WORKERS, *job, timeout=TIMEOUT_S, backend="gloo", network=network)[0]


SYSTEM = System(
    "Send less, less often", "ours: all parts side by side", "compress, cadence", experiment, report.study
)
