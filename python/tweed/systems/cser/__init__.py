"""CSER: SGD with error reset (arXiv 2007.13221, NeurIPS 2020): what is not sent is applied at once, alone.

Parts: `ErrorReset` over two `RandomBlocks`, and steps are exchanged: `cser(ratio, reset_ratio, every)`. CSEA
and CSER-PL are settings of the same memory. Momentum stays with each worker (M-CSER).

The paper's claim: at compression of 32 to 1,024 times, CSER ends ahead of its special cases, these ahead of
QSparse-local-SGD, and that ahead of SGD with error feedback. The experiment gives all methods the same bytes
and the same search for a learning rate, dense training too, and compares the accuracy of the average model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tweed.recipes.named import named_strategy
from tweed.report.comparison import Goal, goals, missing, of_points
from tweed.report.notes import Line, Notes, differences, values, where
from tweed.report.study import Section, Study
from tweed.strategy import Strategy
from tweed.systems import Headline, System
from tweed.systems.cser import report
from tweed.systems.harness import simulated_training
from tweed.systems.harness.learning_rates import Grid
from tweed.systems.harness.tuning import Side, trained, tuned

#: By ratio. At 1,024 times the paper resets every 256 steps; trainings here are too short for that.
METHODS = {
    ratio: dict(zip(report.SIDES, named, strict=True))
    for ratio, named in {
        32: ("cser(64, 4, 16)", "csea(32)", "cser_pl(8, 4)", "qsparse_local(4, 8)", "ef_sgd(32)"),
        256: ("cser(512, 16, 32)", "csea(256)", "cser_pl(16, 16)", "qsparse_local(32, 8)", "ef_sgd(256)"),
        1024: (
            "cser(2048, 64, 32)",
            "csea(1024)",
            "cser_pl(32, 32)",
            "qsparse_local(128, 8)",
            "ef_sgd(1024)",
        ),
    }.items()
}
#: Which method is claimed to be ahead of which.
ORDER = (
    ("CSER", "CSEA"),
    ("CSER", "CSER-PL"),
    ("CSEA", "QSparse-local-SGD"),
    ("CSER-PL", "QSparse-local-SGD"),
    ("QSparse-local-SGD", "EF-SGD"),
)
DENSE = "dense"
WORKERS = 8
#: The day since when the goals stand.
FIXED = "2026-11-23"
#: At least as good: not worse by so many points.
POINTS = 0.5


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


def strategy(label: str, ratio: int) -> Strategy:
    """What a method is at a compression ratio. Dense: all steps are averaged as they are."""
    return Strategy("step") if label == DENSE else named_strategy(METHODS[ratio][label])


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


def _goals(lines: Sequence[Line], task: str) -> Iterator[Goal]:
    """The goals of one task."""
    for ratio in sorted({line["ratio"] for line in lines if line["ratio"] > 1}):
        for better, worse in ORDER:
            mine, theirs = (where(lines, ratio=ratio, method=label) for label in (better, worse))
            goal = f"{task}, {ratio}×: {better} at least as good as {worse} (within {POINTS} points)"
            yield of_points(goal, differences(mine, theirs), -POINTS)
        goal = f"{task}, {ratio}×: the average of CSER's models is better than one of them"
        mine = where(lines, ratio=ratio, method="CSER")
        yield of_points(goal, [100 * (line["accuracy"] - line["local_accuracy"]) for line in mine], 0.0)


def _formula(lines: Sequence[Line]) -> Goal:
    goal = "bytes within 1 % of 1 / ratio + 1 / (every × reset ratio), for every method"
    compressed = [line for line in lines if line["ratio"] > 1 and not line["diverged"]]
    if not compressed:
        return missing(goal)
    worst = max(abs(line["up_share"] * line["ratio"] - 1) for line in compressed)
    return goal, f"at most {worst:.2%} off", worst <= 0.01


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    lines = where(lines, kind="training")
    found = [goal for task in values(lines, "task") for goal in _goals(where(lines, task=task), task)]
    first = Section("Goals", tables=[goals([*found, _formula(lines)], fixed=FIXED)])
    lead = f"{WORKERS} workers average the same few bytes by six methods: who learns most?"
    return Study("CSER: what is not sent is applied at once", lead, [first, *report.sections(lines)])


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
