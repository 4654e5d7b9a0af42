"""CSER: SGD with error reset (arXiv 2007.13221, NeurIPS 2020): what is not said is applied at once, alone.

Parts: `ErrorReset` over two `RandomBlocks`, and steps are exchanged: `cser(ratio, reset_ratio, every)`. CSEA
and CSER-PL are settings of the same memory. Momentum stays with each worker (M-CSER).

The paper's claim: at compression of 32 to 1,024 times, CSER ends ahead of its special cases, these ahead of
QSparse-local-SGD, and that ahead of SGD with error feedback. The experiment gives all methods the same bytes
and the same search for a learning rate, and compares the accuracy of the average model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from tweed.named import named_strategy
from tweed.report.study import Section, Study
from tweed.strategy import Strategy
from tweed.systems import cser_report
from tweed.systems.base import Line, Notes, System
from tweed.systems.rehearsal import Rehearsal, rehearse

#: At 1,024 times the paper resets every 256 steps; trainings here are too short for that.
METHODS = {
    32: {
        "CSER": "cser(64, 4, 16)",
        "CSEA": "csea(32)",
        "CSER-PL": "cser_pl(8, 4)",
        "QSparse-local-SGD": "qsparse_local(4, 8)",
        "EF-SGD": "ef_sgd(32)",
    },
    256: {
        "CSER": "cser(512, 16, 32)",
        "CSEA": "csea(256)",
        "CSER-PL": "cser_pl(16, 16)",
        "QSparse-local-SGD": "qsparse_local(32, 8)",
        "EF-SGD": "ef_sgd(256)",
    },
    1024: {
        "CSER": "cser(2048, 64, 32)",
        "CSEA": "csea(1024)",
        "CSER-PL": "cser_pl(32, 32)",
        "QSparse-local-SGD": "qsparse_local(128, 8)",
        "EF-SGD": "ef_sgd(1024)",
    },
}
DENSE = "dense"
SEEDS = (0, 1, 2)
WORKERS = 8


@dataclass(frozen=True, slots=True)
class Course:
    """A task, how long it is trained on, and the learning rates that every method is tried with."""

    task: str
    steps: int
    batch: int
    rates: tuple[float, ...]
    seeds: tuple[int, ...] = SEEDS
    ratios: tuple[int, ...] = (256, 1024, 32)  # in the order in which they are trained


COURSES = (
    Course("fashion-mnist", 320, 4, (0.003, 0.01, 0.03)),
    Course("shakespeare", 160, 4, (0.001, 0.003), (0,), (32,)),
)
QUICK = (Course("digits", 64, 4, (0.03,), (0,), (256,)),)


def strategy(label: str, ratio: int) -> Strategy:
    """What a method is at a compression ratio. Dense: all steps are averaged as they are."""
    return Strategy("step") if label == DENSE else named_strategy(METHODS[ratio][label])


def experiment(notes: Notes, quick: bool) -> None:
    """Searches the learning rate with the first seed, then trains with the others at the best one.

    Cost: some 12 minutes on one quiet core; quick: seconds.
    """
    for course in QUICK if quick else COURSES:
        for label, ratio in _cells(course):
            for rate in course.rates:
                _train(notes, course, label, ratio, rate, course.seeds[0])
            rate = best_rate(notes.lines, course.task, label, ratio)
            for seed in course.seeds[1:]:
                _train(notes, course, label, ratio, rate, seed)


def _cells(course: Course) -> Iterator[tuple[str, int]]:
    yield DENSE, 1
    for ratio in course.ratios:
        yield from ((label, ratio) for label in METHODS[ratio])


def best_rate(lines: Sequence[Line], task: str, label: str, ratio: int) -> float:
    """The learning rate with the highest accuracy for the first seed."""
    tried = [line for line in lines if _is(line, task, label, ratio) and line["seed"] == SEEDS[0]]
    return float(max(tried, key=lambda line: line["accuracy"])["lr"])


def _is(line: Line, task: str, label: str, ratio: int) -> bool:
    return (line["task"], line["method"], line["ratio"]) == (task, label, ratio)


def _train(notes: Notes, course: Course, label: str, ratio: int, lr: float, seed: int) -> None:
    which = {"kind": "training", "task": course.task, "method": label, "ratio": ratio, "lr": lr, "seed": seed}
    if notes.has(**which):
        return
    outcome = rehearse(
        Rehearsal(course.task, strategy(label, ratio), course.steps, course.batch, lr, seed, WORKERS)
    )
    notes.tell(f"{course.task}, {ratio}×, {label}, lr {lr}, seed {seed}: {outcome.accuracy:.2%}")
    notes.add(which | {"steps": course.steps, "batch": course.batch} | asdict(outcome))


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    chosen = [
        line for line in lines if line["lr"] == best_rate(lines, line["task"], line["method"], line["ratio"])
    ]
    parts: list[Section] = cser_report.sections(chosen, lines)
    lead = f"{WORKERS} workers average the same few bytes by six methods: who learns most?"
    return Study("CSER: what is not said is applied at once", lead, parts)


SYSTEM = System(
    "CSER, SGD with error reset",
    "arXiv 2007.13221, NeurIPS 2020",
    "cser(512, 16, 32)",
    experiment,
    study,
)
