"""DCT, dynamic communication thresholding (arXiv 2010.08899, KDD 2021): both halves.

Parts: `ErrorFeedback` over a `Threshold` of gradients, for data parallel training: `dct(sparsity)` with a
threshold that a controller holds, `dct(sparsity, life_span)` as published. `tweed.torch.stage_link` with a
`Cut` for model parallel training: thresholds of activations, and of their gradients the same places.

The claims: at 99 % sparsity models train as if dense; a threshold that is found once per thousand steps
serves as well as one found at each, and the work falls by about that factor; a hundred times fewer bytes
between data parallel workers, twenty times fewer between stages.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

from tweed.compress import Compressor, Direct, ErrorFeedback, Identity, Threshold, TopK
from tweed.exchange.stages import Cut
from tweed.experiments import simulated_training, two_stages
from tweed.experiments.counted import Counted, by_step
from tweed.experiments.encoding import encoding, selection
from tweed.experiments.holding import holding
from tweed.experiments.notes import Line, Notes, best_lr
from tweed.recipes import dct
from tweed.report.study import Study
from tweed.strategy import Strategy
from tweed.systems import System
from tweed.systems.reports import dct as report
from tweed.systems.reports.dct import CUT, DCT, DENSE, EACH, HELD, NO_MEMORY, ONE, PUBLISHED

SEEDS = (0, 1, 2, 3, 4)
#: Of the search for learning rates; not used again.
SEARCH_SEED = 100
#: A search ends after so many learning rates, though the best be at the edge.
MOST_LRS = 8
WORKERS = 4
LIFE_SPANS = (1, 10, 100, 1000)
#: Values of the buffer over which encoding is timed: far more than caches hold.
NUMEL = 10_000_000


class Training(NamedTuple):
    """A task; steps, samples per step and worker, learning rates to begin with; first layer of a second
    stage, 0 for data parallel training."""

    task: str
    steps: int
    batch: int
    lrs: tuple[float, ...]
    at: int = 0
    seeds: Sequence[int] = SEEDS


SIDES = {
    DENSE: Strategy(),
    DCT: dct(0.99),
    PUBLISHED: dct(0.99, 1000),
    EACH: Strategy(compress=ErrorFeedback(TopK(0.01))),
    NO_MEMORY: Strategy(compress=Direct(Threshold(0.01, per_tensor=False))),
}
CUTS = {ONE: None, CUT: Cut()}
FULL = (
    Training("digits", 1000, 8, (0.03, 0.06, 0.12)),
    Training("fashion-mnist", 400, 8, (0.03, 0.06, 0.12)),
    Training("digits", 1000, 32, (0.03, 0.06, 0.12), at=3),
    Training("fashion-mnist", 400, 32, (0.03, 0.06, 0.12), at=7),
)
QUICK = tuple(Training("digits", 60, batch, (0.03,), at, SEEDS[:1]) for batch, at in ((8, 0), (32, 3)))


def experiment(notes: Notes, quick: bool) -> None:
    """What encoding takes, then trainings. Cost: some 40 minutes on one quiet core; quick: seconds."""
    numel = NUMEL // (100 if quick else 1)
    for life_span in (HELD, *LIFE_SPANS, 0):
        if not notes.has(kind="encoding", life_span=life_span):
            found_s, kept_s = _encoding_s(life_span, numel)
            line = {"kind": "encoding", "life_span": life_span, "numel": numel}
            notes.log(f"encoding, life span {life_span}: {1e3 * found_s:.2f} ms, {1e3 * kept_s:.2f} ms")
            notes.add(line | {"found_s": found_s, "kept_s": kept_s})
    for training in QUICK if quick else FULL:
        for label, side in (CUTS if training.at else SIDES).items():
            which = {"half": "model" if training.at else "data", "task": training.task, "method": label}
            _trained(notes, which, training, functools.partial(_run, side, training))


def _encoding_s(life_span: int, numel: int) -> tuple[float, float]:
    """Seconds with a new threshold, and with an old one. Life span 0: torch finds the same values anew."""
    if life_span == HELD:
        return holding(Threshold(0.01), numel)
    return encoding(Threshold(0.01, life_span), numel) if life_span else (selection(numel // 100, numel),) * 2


#: A training by learning rate and seed; what came of it.
Run = Callable[[float, int], Line]


def _trained(notes: Notes, which: Line, training: Training, run: Run) -> None:
    """Finds the learning rate that a side is best at, inside of the grid, and trains with each seed."""
    grid, best = sorted(training.lrs), training.lrs[0]
    while len(grid) > 1:
        for lr in grid:
            _noted(notes, {"kind": "search", **which, "lr": lr, "seed": SEARCH_SEED}, run)
        best = best_lr(notes.lines, kind="search", **which)
        if best not in (grid[0], grid[-1]) or len(grid) >= MOST_LRS:
            break
        grid = [best / 2, *grid] if best == grid[0] else [*grid, best * 2]
    for seed in training.seeds:
        _noted(notes, {"kind": "training", **which, "lr": best, "seed": seed}, run)


def _noted(notes: Notes, which: Mapping[str, object], run: Run) -> None:
    if not notes.has(**which):
        outcome = run(which["lr"], which["seed"])  # type: ignore[arg-type]
        notes.log(", ".join(str(fact) for fact in which.values()) + f": {outcome['accuracy']:.2%}")
        notes.add({**which, **outcome})


def _run(side: Strategy | Cut | None, training: Training, lr: float, seed: int) -> Line:
    task, steps, batch, _, at, _ = training
    if not isinstance(side, Strategy):
        return asdict(two_stages.train(two_stages.Config(task, at, side, steps, batch, lr, seed)))
    counts = Counted(Identity())
    if isinstance(memory := side.memory, ErrorFeedback | Direct):
        assert isinstance(memory.compressor, Compressor)  # all sides' are
        counts = Counted(memory.compressor)
        side = replace(side, compress=replace(memory, compressor=counts))
    config = simulated_training.Config(task, side, steps, batch, lr, seed, WORKERS)
    return asdict(simulated_training.train(config)) | report.sent(by_step(counts.shares, WORKERS))


def study(lines: Sequence[Line]) -> Study:
    """The report of the notes' lines."""
    return report.study(lines, WORKERS)


SYSTEM = System(
    "DCT, dynamic communication thresholding",
    "arXiv 2010.08899, KDD 2021",
    "dct(sparsity=0.99)",
    experiment,
    study,
)
