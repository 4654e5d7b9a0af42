"""Send less, less often: what compressors, memories and cadences bring on slow links, beside DDP on Gloo.

Ours, of all parts side by side. Four workers train the Fashion-MNIST network of `tweed train`, computing for
real. Measured are the accuracy over steps of whole trainings, the time per step of all sides in turns behind
shaped links, and bytes; from those comes the time to the accuracy that DDP reaches. Every side has the best
learning rate of a search of its own.

contenders          sides and places
report              goals, tables and plots
report_step_times   README's picture
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product, starmap

from tweed import testbed
from tweed.recipes.named import named_strategy
from tweed.report.notes import Notes
from tweed.systems import Headline, System
from tweed.systems.compression.contenders import (
    AUTO,
    BBR,
    DILOCO,
    EVERY,
    FAR,
    FAR_PLACES,
    FASTEST,
    LADDER,
    LATER_SIDES,
    LATER_TIMES,
    LOCAL,
    LOSSES,
    METHODS,
    NAMED,
    OFF,
    PEERS,
    RATES,
    SIGNED,
    TEXT_METHODS,
    TEXT_PLACES,
    TEXT_TASK,
    WORKERS,
    congested,
    place,
)
from tweed.systems.compression.report import study
from tweed.systems.harness import benchmark
from tweed.systems.harness.learning_rates import Grid, best_lr
from tweed.systems.harness.live_training import SEARCHED, Ranks
from tweed.systems.harness.time_to_accuracy import ALONE, DDP
from tweed.systems.harness.training import Config, Method

SEEDS = range(5)
#: Where every side's search for a learning rate begins.
GRIDS = {"sgd": Grid(0.1, 2.0), "adamw": Grid(0.002, 2.0)}
#: Sides that train behind slow links too, with seed 0: the measured times beside the computed ones.
FULL = (DDP, LOCAL, SIGNED, DILOCO)
#: Of the second task, whose evaluation of all samples takes as long as 75 steps: what a training is, where
#: searches begin, and seeds.
TEXT_CONFIG, TEXT_GRID, TEXT_SEEDS = (
    Config(TEXT_TASK, batch=8, steps=256, tested=1_000),
    Grid(0.0005, 2.0),
    range(2),
)
#: Except that DDP stops early at the slowest, where a step of it takes a second.
EARLY = 128


def experiment(notes: Notes, quick: bool) -> None:
    """Searches learning rates, times steps behind links, and trains with five seeds.

    Cost: some three hours of two cores: 27 sides train about fifteen times each, some 15 seconds a time with
    no network between ranks; 40 minutes behind slow links, which alone need a quiet machine. The second task
    takes two more hours.
    Quick: one minute.
    """
    testbed.preload("tweed.systems.harness.training", "tweed.train.tasks.fashion_mnist")
    # What "auto" takes depends on the link.
    ranks, sides = Ranks(notes, WORKERS, {AUTO: RATES[-1]}), list(METHODS)
    if quick:
        sides = [side for side in sides if side.key in (ALONE, DDP, LADDER[-1])]
    config = Config("digits", batch=16, steps=64, every=8) if quick else Config()
    for side in sides[1:]:
        grid = GRIDS[side.optimizer]
        ranks.search(side, replace(grid, tries=1) if quick else grid, config)
    sides = [
        replace(side, lr=best_lr(notes.lines, side.key) or GRIDS[side.optimizer].first) for side in sides
    ]
    if quick:
        ranks.train(sides[1:], config)
        ranks.time(sides, config, RATES[1], _rounds(2, 0.2))
        return
    for rate in RATES:
        ranks.time(sides, config, rate, _rounds(5, 1.0))
    later = [side for side in sides if side.key in LATER_SIDES]
    for rate in (*RATES, FAR):
        ranks.time(later, config, rate, _rounds(5, 1.0), LATER_TIMES)
    # For docs/choosing.md: more networks. TCP brings what is lost, so only the time per step is another one.
    named = [side for side in sides if side.key in (*PEERS, *NAMED)]
    for where in (*starmap(place, product((*RATES, FASTEST), LOSSES)), *FAR_PLACES):
        ranks.time(named, config, where, _rounds(3, 1.0))
    peers = [side for side in sides if side.key in PEERS]
    for where in (*starmap(place, product((*RATES, FASTEST), LOSSES[1:])), *FAR_PLACES):
        ranks.time(peers, config, congested(where, BBR), _rounds(3, 0.6))
    # Does compression do harm where it does not pay?
    plain = [Method(EVERY, named_strategy("every_step"), warm=24)]
    plain += [Method(OFF, named_strategy("auto"), warm=24)]
    ranks.time(plain, config, FASTEST, _rounds(40, 0.3))
    for seed in SEEDS:
        ranks.train(sides[1:], replace(config, seed=seed))
    for rate in RATES[:-1]:
        for side in [side for side in sides if side.key in FULL]:
            slow = (side.key, rate) == (DDP, RATES[0])
            ranks.train([side], replace(config, stop=EARLY if slow else None), rate)
    _on_text(ranks)


def _on_text(ranks: Ranks) -> None:
    """The second task: fewer sides and seeds, as a training takes minutes, and searches with one seed."""
    lines = ranks.notes.lines
    for side in TEXT_METHODS[1:]:
        ranks.search(side, TEXT_GRID, TEXT_CONFIG, SEARCHED[:1])
    sides = [replace(side, lr=best_lr(lines, side.key) or TEXT_GRID.first) for side in TEXT_METHODS]
    for place_of_text in TEXT_PLACES:
        ranks.time(sides, TEXT_CONFIG, place_of_text, _rounds(3, 4.0))
    for seed in TEXT_SEEDS:
        ranks.train(sides[1:], replace(TEXT_CONFIG, seed=seed))


def _rounds(count: int, seconds: float) -> benchmark.Config:
    """So many rounds of about so many seconds."""
    return benchmark.Config(count, count * seconds, least=1, most=1 << 30, warm=1)


SYSTEM = System(
    "Send less, less often",
    "ours: all parts side by side",
    "compress, cadence",
    experiment,
    study,
    headline=Headline(
        "own comparison, no paper",
        "{} sooner than DDP at an accuracy 0.5 points below DDP's, at 10 Mbit/s",
        ("10 Mbit/s, to within 0.5 points: our best at least 10× sooner than DDP",),
        "Links of 1 Gbit/s and slower. The strategy to begin with.",
    ),
)
