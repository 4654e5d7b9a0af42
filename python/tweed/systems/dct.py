"""DCT, dynamic communication thresholding (arXiv 2010.08899, KDD 2021): its data-parallel half.

Parts: `ErrorFeedback` over a `Threshold` that lives for many steps, and gradients are exchanged:
`dct(sparsity, life_span)`. The half for model parallel training, thresholds on activations, is not here.

The claims: at 99 % sparsity models train as if dense; a threshold that is found once per thousand steps
serves as well as one found at each, and the work falls by about that factor; a hundred times fewer bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

from tweed.compress import Chain, Direct, ErrorFeedback, Threshold
from tweed.recipes import dct
from tweed.report.study import Study
from tweed.strategy import Strategy
from tweed.systems import dct_report
from tweed.systems.base import Line, Notes, System
from tweed.systems.overhead import encoding, selection
from tweed.systems.rehearsal import POINT, Rehearsal, Room, rehearse

SEEDS = (0, 1, 2)
WORKERS = 4
LIFE_SPANS = (1, 10, 100, 1000)
#: Numbers of the buffer over which encoding is timed: far more than caches hold.
NUMEL = 10_000_000

SIDES = {
    "dense": Strategy(),
    "DCT": dct(0.99, 1000),
    "DCT, life span 100": dct(0.99, 100),
    "top-k each step": dct(0.99, 1),
    "DCT, nothing fed back": Strategy(compress=Direct(Threshold(0.01, 1000))),
    "DCT, indices coded": Strategy(compress=ErrorFeedback(Chain(Threshold(0.01, 1000)))),
}


@dataclass(frozen=True, slots=True)
class Course:
    """A task, how long it is trained on, and at what learning rate; equal for all sides."""

    task: str
    steps: int
    batch: int
    lr: float
    seeds: tuple[int, ...] = SEEDS


COURSES = (
    Course("digits", 2000, 8, 0.03),
    Course("fashion-mnist", 400, 8, 0.03),
    Course("shakespeare", 300, 4, 0.003, (0,)),
)
QUICK = (Course("digits", 60, 8, 0.03, (0,)),)


def experiment(notes: Notes, quick: bool) -> None:
    """What encoding takes, then trainings. Cost: some 8 minutes on one quiet core; quick: seconds."""
    for life_span in LIFE_SPANS:
        _time(notes, life_span, NUMEL // (100 if quick else 1))
    _time_torch(notes, NUMEL // (100 if quick else 1))
    for course in QUICK if quick else COURSES:
        for seed in course.seeds:
            for label in SIDES:
                _train(notes, course, label, seed)


def _time(notes: Notes, life_span: int, numel: int) -> None:
    if not notes.has(kind="encoding", life_span=life_span):
        found_s, kept_s = encoding(Threshold(0.01, life_span), numel)
        notes.tell(
            f"encoding: {1e3 * found_s:.2f} ms with a new threshold, {1e3 * kept_s:.2f} ms with an old one"
        )
        line = {"kind": "encoding", "life_span": life_span, "numel": numel}
        notes.add(line | {"found_s": found_s, "kept_s": kept_s})


def _time_torch(notes: Notes, numel: int) -> None:
    """What finding the same numbers takes torch. Life span 0: it finds them and forgets which they were."""
    if not notes.has(kind="encoding", life_span=0):
        seconds = selection(numel // 100, numel)
        notes.add({"kind": "encoding", "life_span": 0, "numel": numel, "found_s": seconds, "kept_s": seconds})


def _train(notes: Notes, course: Course, label: str, seed: int) -> None:
    which = {"kind": "training", "task": course.task, "method": label, "seed": seed}
    if notes.has(**which):
        return
    said: list[float] = []

    def watch(step: int, room: Room) -> None:
        if step % POINT == 0:
            said.append(room.workers.traffic.up_bytes / (4 * room.workers.all[0].flat.spec.numel))

    strategy = SIDES[label]
    lesson = Rehearsal(course.task, strategy, course.steps, course.batch, course.lr, seed, WORKERS)
    outcome = rehearse(lesson, watch)
    per_step = [(after - before) / POINT for before, after in pairwise(said)]
    notes.tell(f"{course.task}, {label}, seed {seed}: {outcome.accuracy:.2%}")
    notes.add(which | {"steps": course.steps, "said": per_step} | asdict(outcome))


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    lead = f"{WORKERS} workers say the largest hundredth of their gradients; a threshold tells which."
    return Study("DCT: a threshold that lives for many steps", lead, dct_report.sections(lines))


SYSTEM = System(
    "DCT, dynamic communication thresholding",
    "arXiv 2010.08899, KDD 2021",
    "dct(sparsity=0.99, life_span=1000)",
    experiment,
    study,
)
