"""DCT, dynamic communication thresholding (arXiv 2010.08899, KDD 2021): its data-parallel half.

Parts: `ErrorFeedback` over a `Threshold` that lives for many steps, and gradients are exchanged:
`dct(sparsity, life_span)`. The half for model parallel training, thresholds on activations, is not here.

The claims: at 99 % sparsity models train as if dense; a threshold that is found once per thousand steps
serves as well as one found at each, and the work falls by about that factor; a hundred times fewer bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tweed.compress import Chain, Direct, ErrorFeedback, Threshold
from tweed.experiments import simulated_training
from tweed.experiments.encoding import encoding, selection
from tweed.experiments.notes import Line, Notes, differences, mean, values, where
from tweed.experiments.simulated_training import POINT
from tweed.recipes import dct
from tweed.report.comparison import Goal, goals, missing, of_points
from tweed.report.study import Section, Study
from tweed.strategy import Strategy
from tweed.systems import System
from tweed.systems.reports import dct as report
from tweed.systems.reports.dct import CODED, DCT, DENSE, EACH, NO_MEMORY, SHORT, per_step

SEEDS = (0, 1, 2)
WORKERS = 4
LIFE_SPANS = (1, 10, 100, 1000)
#: Values of the buffer over which encoding is timed: far more than caches hold.
NUMEL = 10_000_000
#: A difference in points that counts as none.
POINTS = 0.5
#: So many times the values asked for may be sent while a threshold lives.
DRIFT = 2.0

SIDES = {
    DENSE: Strategy(),
    DCT: dct(0.99, 1000),
    SHORT: dct(0.99, 100),
    EACH: dct(0.99, 1),
    NO_MEMORY: Strategy(compress=Direct(Threshold(0.01, 1000))),
    CODED: Strategy(compress=ErrorFeedback(Chain(Threshold(0.01, 1000)))),
}
#: By task: steps, batch, learning rate and seeds, equal for all sides.
FULL = {
    "digits": (2000, 8, 0.03, SEEDS),
    "fashion-mnist": (400, 8, 0.03, SEEDS),
    "shakespeare": (300, 4, 0.003, SEEDS[:1]),
}
QUICK = {"digits": (60, 8, 0.03, SEEDS[:1])}


def experiment(notes: Notes, quick: bool) -> None:
    """What encoding takes, then trainings. Cost: some 8 minutes on one quiet core; quick: seconds."""
    numel = NUMEL // (100 if quick else 1)
    for life_span in (*LIFE_SPANS, 0):
        if not notes.has(kind="encoding", life_span=life_span):
            found_s, kept_s = _encoding_s(life_span, numel)
            line = {"kind": "encoding", "life_span": life_span, "numel": numel}
            notes.log(f"encoding, life span {life_span}: {1e3 * found_s:.2f} ms, {1e3 * kept_s:.2f} ms")
            notes.add(line | {"found_s": found_s, "kept_s": kept_s})
    for task, (steps, batch, lr, seeds) in (QUICK if quick else FULL).items():
        for seed in seeds:
            for label, strategy in SIDES.items():
                which = {"kind": "training", "task": task, "method": label, "seed": seed}
                config = simulated_training.Config(task, strategy, steps, batch, lr, seed, WORKERS)
                simulated_training.noted(notes, which, config)


def _encoding_s(life_span: int, numel: int) -> tuple[float, float]:
    """Seconds with a new threshold, and with an old one. Life span 0: torch finds the same values anew."""
    return encoding(Threshold(0.01, life_span), numel) if life_span else (selection(numel // 100, numel),) * 2


def _quality(lines: Sequence[Line], task: str) -> Iterator[Goal]:
    for goal, mine, theirs, least in (
        (f"{task}: DCT within {POINTS} points of dense", DCT, DENSE, -POINTS),
        (f"{task}: the same with a life span of 100", SHORT, DENSE, -POINTS),
        (f"{task}: DCT within {POINTS} points of top-k each step", DCT, EACH, -POINTS),
        (f"{task}: DCT ahead of DCT without error feedback by {POINTS} points", DCT, NO_MEMORY, POINTS),
    ):
        yield of_points(goal, differences(where(lines, method=mine), where(lines, method=theirs)), least)
    for label in (DCT, SHORT):
        goal = f"{task}: {label} sends within {DRIFT:g}× of what was asked for"
        asked = mean(where(lines, method=EACH), "up_share")
        sent = [share for line in where(lines, method=label) for share in line["up_shares"]]
        if asked is None or not sent:
            yield missing(goal)
            continue
        least, most = min(sent) / asked, max(sent) / asked
        words = f"{least:.2f}× to {most:.2f}×, in the mean over {POINT} steps"
        yield goal, words, most <= DRIFT and least >= 1 / DRIFT


def _overhead(encodings: Mapping[int, Line]) -> Iterator[Goal]:
    goal = "encoding at a life span of 1,000 takes at most 1/500 of that at 1"
    if not {0, 1, 1000} <= set(encodings):
        yield missing(goal)
        return
    each, rare = per_step(encodings, 1), per_step(encodings, 1000)
    yield goal, f"1/{each / rare:.1f}: the pass over all values stays", each / rare >= 500
    beside = float(encodings[0]["found_s"]) / rare
    yield "the same, beside torch.topk at each step", f"1/{beside:.0f}", beside >= 500
    chosen = max(encodings[1000]["found_s"] - encodings[1000]["kept_s"], 0.0)
    share = chosen / 1000 / rare
    goal = "the search for the threshold takes at most 1 % of encoding at a life span of 1,000"
    yield goal, f"{share:.3%}; {chosen / per_step(encodings, 1):.0%} at a life span of 1", share <= 0.01


def _fewer(trainings: Sequence[Line]) -> Iterator[Goal]:
    for task in values(trainings, "task"):
        mine, coded = (mean(where(trainings, task=task, method=label), "up_share") for label in (DCT, CODED))
        if mine is not None:
            yield f"{task}: values sent, 100× fewer", f"{2 / mine:.1f}×", 2 / mine >= 100
            words = f"{1 / mine:.1f}×" + ("" if coded is None else f"; {1 / coded:.1f}× with indices coded")
            yield f"{task}: bytes sent, 100× fewer", words, 1 / min(mine, coded or mine) >= 100


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    trainings = where(lines, kind="training")
    encodings = {line["life_span"]: line for line in where(lines, kind="encoding")}
    found = [
        goal for task in values(trainings, "task") for goal in _quality(where(trainings, task=task), task)
    ]
    first = Section("Goals", tables=[goals([*found, *_overhead(encodings), *_fewer(trainings)])])
    lead = f"{WORKERS} workers send the largest hundredth of their gradients; a threshold decides which."
    parts = [first, *report.sections(trainings, encodings)]
    return Study("DCT: a threshold that lives for many steps", lead, parts)


SYSTEM = System(
    "DCT, dynamic communication thresholding",
    "arXiv 2010.08899, KDD 2021",
    "dct(sparsity=0.99, life_span=1000)",
    experiment,
    study,
)
