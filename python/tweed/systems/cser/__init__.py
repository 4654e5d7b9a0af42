"""CSER: SGD with error reset (arXiv 2007.13221, NeurIPS 2020): what is not sent is applied at once, alone.

Parts: `ErrorReset` over two `RandomBlocks`, and steps are exchanged: `cser(ratio, reset_ratio, every)`. CSEA
and CSER-PL are settings of the same memory. Momentum stays with each worker (M-CSER).

The paper's claim: at compression of 32 to 1,024 times, CSER ends ahead of its special cases, these ahead of
QSparse-local-SGD, and that ahead of SGD with error feedback. The experiment gives all methods the same bytes
and the same search for a learning rate, dense training too, and compares the accuracy of the average model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tweed.report.notes import Notes
from tweed.systems import Headline, System
from tweed.systems.cser.contenders import DENSE, METHODS, WORKERS, strategy
from tweed.systems.cser.report import study
from tweed.systems.harness import simulated_training
from tweed.systems.harness.learning_rates import Grid
from tweed.systems.harness.tuning import Side, trained, tuned


@dataclass(frozen=True, slots=True)
class Config:
    """A task, how long it is trained on, and where every method's search for a learning rate begins."""

    task: str
    steps: int
    batch: int
    grid: Grid
    seeds: range = range(5)
    ratios: tuple[int, ...] = (32, 256, 1024)


FULL = (
    Config("fashion-mnist", 320, 4, Grid(0.03)),
    Config("shakespeare", 160, 4, Grid(0.003), ratios=(32,)),
)
QUICK = (Config("digits", 20, 4, Grid(0.03, tries=1), range(1), (256,)),)


def experiment(notes: Notes, quick: bool) -> None:
    """Searches every method's learning rate, then trains it with five seeds at the best one.

    Cost: some 40 minutes of one core; as many methods at a time as there are cores. Quick: seconds.
    """
    sides = [side for config in (QUICK if quick else FULL) for side in _sides(config)]
    tuned(notes, sides, 1 if quick else None)


def _sides(config: Config) -> Iterator[Side]:
    cells = [(DENSE, 1), *((label, ratio) for ratio in config.ratios for label in METHODS[ratio])]
    for label, ratio in cells:
        facts = {"task": config.task, "method": label, "ratio": ratio}
        of = (config.steps, config.batch, config.grid.first, 0, WORKERS)
        run = simulated_training.Config(config.task, strategy(label, ratio), *of)
        name = f"{config.task}, {label}, {ratio}×"
        yield trained(name, facts, run, config.grid, config.seeds)


SYSTEM = System(
    "CSER, SGD with error reset",
    "arXiv 2007.13221, NeurIPS 2020",
    "cser(512, 16, 32)",
    experiment,
    study,
    headline=Headline(
        "nearly 10× faster training on CIFAR-100, 4.5× on ImageNet",
        "at 256× fewer bytes, CSEA, its simpler form, {} above QSparse-local-SGD; CSER {} from CSEA",
        (
            "fashion-mnist, 256×: CSEA at least as good as QSparse-local-SGD (within 0.5 points)",
            "fashion-mnist, 256×: CSER at least as good as CSEA (within 0.5 points)",
        ),
        "Hundreds of times fewer bytes. Take CSEA: CSER itself was not above it.",
    ),
)
