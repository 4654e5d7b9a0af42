"""CSER: SGD with error reset (arXiv 2007.13221, NeurIPS 2020): what is not sent is applied at once, alone.

Parts: `ErrorReset` over two `RandomBlocks`, and steps are exchanged: `cser(ratio, reset_ratio, every)`. CSEA
and CSER-PL are settings of the same memory. Momentum stays with each worker (M-CSER).

The paper's claim: at compression of 32 to 1,024 times, CSER ends ahead of its special cases, these ahead of
QSparse-local-SGD, and that ahead of SGD with error feedback. The experiment gives all methods the same bytes
and the same search for a learning rate, and compares the accuracy of the average model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tweed.experiments import simulated_training
from tweed.experiments.notes import Line, Notes, best_lr, differences, values, where
from tweed.named import named_strategy
from tweed.report.comparison import Goal, goals, missing, of_points
from tweed.report.study import Section, Study
from tweed.strategy import Strategy
from tweed.systems import System
from tweed.systems.reports import cser as report

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
SEEDS = (0, 1, 2)
WORKERS = 8
#: A difference in points that counts as none.
POINTS = 0.5


@dataclass(frozen=True, slots=True)
class Config:
    """A task, how long it is trained on, and the learning rates that every method is tried with."""

    task: str
    steps: int
    batch: int
    rates: tuple[float, ...]
    seeds: tuple[int, ...] = SEEDS
    ratios: tuple[int, ...] = (256, 1024, 32)  # in the order in which they are trained


FULL = (
    Config("fashion-mnist", 320, 4, (0.003, 0.01, 0.03)),
    Config("shakespeare", 160, 4, (0.001, 0.003), (0,), (32,)),
)
QUICK = (Config("digits", 64, 4, (0.03,), (0,), (256,)),)


def strategy(label: str, ratio: int) -> Strategy:
    """What a method is at a compression ratio. Dense: all steps are averaged as they are."""
    return Strategy("step") if label == DENSE else named_strategy(METHODS[ratio][label])


def experiment(notes: Notes, quick: bool) -> None:
    """Searches the learning rate with the first seed, then trains with the others at the best one.

    Cost: some 12 minutes on one quiet core; quick: seconds.
    """
    for config in QUICK if quick else FULL:
        cells = [(DENSE, 1), *((label, ratio) for ratio in config.ratios for label in METHODS[ratio])]
        for label, ratio in cells:
            which = {"kind": "training", "task": config.task, "method": label, "ratio": ratio}
            for lr in config.rates:
                _train(notes, config, which | {"lr": lr, "seed": config.seeds[0]})
            lr = best_lr(notes.lines, seed=SEEDS[0], **which)
            for seed in config.seeds[1:]:
                _train(notes, config, which | {"lr": lr, "seed": seed})


def _train(notes: Notes, config: Config, which: Line) -> None:
    compressed = strategy(which["method"], which["ratio"])
    of = (config.steps, config.batch, which["lr"], which["seed"], WORKERS)
    simulated_training.noted(notes, which, simulated_training.Config(config.task, compressed, *of))


def _goals(lines: Sequence[Line], task: str) -> Iterator[Goal]:
    """Of one task; `lines` are those at the best rates."""
    for ratio in sorted({line["ratio"] for line in lines if line["ratio"] > 1}):
        for better, worse in ORDER:
            mine, theirs = (where(lines, ratio=ratio, method=label) for label in (better, worse))
            goal = f"{task}, {ratio}×: {better} at least as good as {worse}"
            yield of_points(goal, differences(mine, theirs), -POINTS)
        goal = f"{task}, {ratio}×: the average of CSER's models is better than one of them"
        mine = where(lines, ratio=ratio, method="CSER")
        points = [100 * (line["accuracy"] - line["local_accuracy"]) for line in mine]
        found = sum(points) / len(points) if points else 0.0
        yield (goal, f"{found:+.2f} points", found > 0) if points else missing(goal)


def _formula(lines: Sequence[Line]) -> Goal:
    goal = "bytes within 1 % of 1 / ratio + 1 / (every × reset ratio), for every method"
    compressed = [line for line in lines if line["ratio"] > 1 and not line["diverged"]]
    if not compressed:
        return missing(goal)
    worst = max(abs(line["up_share"] * line["ratio"] - 1) for line in compressed)
    return goal, f"at most {worst:.2%} off", worst <= 0.01


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    of = ("task", "method", "ratio")
    best = {
        key: best_lr(lines, seed=SEEDS[0], **dict(zip(of, key, strict=True)))
        for key in {tuple(line[name] for name in of) for line in lines}
    }
    chosen = [line for line in lines if line["lr"] == best[tuple(line[name] for name in of)]]
    found = [goal for task in values(lines, "task") for goal in _goals(where(chosen, task=task), task)]
    first = Section("Goals", tables=[goals([*found, _formula(lines)])])
    lead = f"{WORKERS} workers average the same few bytes by six methods: who learns most?"
    return Study("CSER: what is not sent is applied at once", lead, [first, *report.sections(chosen, lines)])


SYSTEM = System(
    "CSER, SGD with error reset", "arXiv 2007.13221, NeurIPS 2020", "cser(512, 16, 32)", experiment, study
)
