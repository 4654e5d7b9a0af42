"""DCT, dynamic communication thresholding (arXiv 2010.08899, KDD 2021): both halves.

Parts: `ErrorFeedback` over a `Threshold` of gradients, for data parallel training: `dct(sparsity)` with a
threshold that a controller holds, `dct(sparsity, life_span)` as published. `tweed.torch.stage_link` with a
`Cut` for model parallel training: thresholds of activations, and of their gradients the same places.

The claims: at 99 % sparsity models train as if dense; a threshold that is found once per thousand steps
serves as well as one found at each, and the work falls by about that factor; a hundred times fewer bytes
between data parallel workers, twenty times fewer between stages.

contenders   sides and cuts
two_stages   a model in two stages
encoding     what compression takes on this machine
counted      how many values a codec sends
report       goals, tables and plots
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import NamedTuple

from tweed.compress import Compressor, Direct, ErrorFeedback, Identity, Threshold
from tweed.exchange.stages import Cut
from tweed.report.notes import Line, Notes
from tweed.strategy import Strategy
from tweed.systems import Headline, System
from tweed.systems.dct import two_stages
from tweed.systems.dct.contenders import CUTS, HELD, LIFE_SPANS, SIDES, WORKERS
from tweed.systems.dct.counted import Counted, by_step, sent
from tweed.systems.dct.encoding import encoding, holding, selection
from tweed.systems.dct.report import study
from tweed.systems.harness import simulated_training
from tweed.systems.harness.learning_rates import SEARCH_SEED, Grid
from tweed.systems.harness.tuning import Side, tuned

GRID = Grid(0.06, 2.0)
#: Values of the buffer over which encoding is timed: far more than caches hold.
NUMEL = 10_000_000


class Training(NamedTuple):
    """A task; steps, samples per step and worker; first layer of a second stage, 0: data parallel training;
    where the search for a learning rate begins, and its seeds."""

    task: str
    steps: int
    batch: int
    at: int = 0
    grid: Grid = GRID
    seeds: range = range(5)
    searched: range = range(SEARCH_SEED, SEARCH_SEED + 1)


#: Steps of 32 samples that meet each sample of Fashion-MNIST once.
EPOCH = 1875
#: With 359 test samples, neighbouring rates are often equally good at one seed.
THREE = range(SEARCH_SEED, SEARCH_SEED + 3)
FULL = (
    Training("digits", 1000, 8, searched=THREE),
    Training("fashion-mnist", EPOCH, 8),
    Training("digits", 1000, 32, at=3, searched=THREE),
    Training("fashion-mnist", EPOCH, 32, at=7),
)
QUICK = tuple(
    Training("digits", 60, batch, at, Grid(0.03, tries=1), range(1)) for batch, at in ((8, 0), (32, 3))
)


def experiment(notes: Notes, quick: bool) -> None:
    """What encoding takes, then trainings. Cost: an hour on two cores; quick: seconds."""
    numel = NUMEL // (100 if quick else 1)
    for life_span in (HELD, *LIFE_SPANS, 0):
        if not notes.has(kind="encoding", life_span=life_span):
            found_s, kept_s = _encoding_s(life_span, numel)
            line = {"kind": "encoding", "life_span": life_span, "numel": numel}
            notes.log(f"encoding, life span {life_span}: {1e3 * found_s:.2f} ms, {1e3 * kept_s:.2f} ms")
            notes.add(line | {"found_s": found_s, "kept_s": kept_s})
    tuned(
        notes,
        [side for training in (QUICK if quick else FULL) for side in _sides(training)],
        1 if quick else None,
    )


def _sides(training: Training) -> Iterator[Side]:
    half = "model" if training.at else "data"
    for label, side in (CUTS if training.at else SIDES).items():
        facts = {"kind": "training", "half": half, "task": training.task, "method": label}
        run = functools.partial(_run, side, training)
        name = f"{training.task}, {label}"
        yield Side(name, facts, run, training.grid, training.seeds, searched=training.searched)


def _encoding_s(life_span: int, numel: int) -> tuple[float, float]:
    """Seconds with a new threshold, and with an old one. Life span 0: torch finds the same values anew."""
    if life_span == HELD:
        return holding(Threshold(0.01), numel)
    return encoding(Threshold(0.01, life_span), numel) if life_span else (selection(numel // 100, numel),) * 2


def _run(side: Strategy | Cut | None, training: Training, lr: float, seed: int) -> Line:
    task, steps, batch, at, *_ = training
    if not isinstance(side, Strategy):
        return asdict(two_stages.train(two_stages.Config(task, at, side, steps, batch, lr, seed)))
    counts = Counted(Identity())
    if isinstance(memory := side.memory, ErrorFeedback | Direct):
        assert isinstance(memory.compressor, Compressor)  # all sides' are
        counts = Counted(memory.compressor)
        side = replace(side, compress=replace(memory, compressor=counts))
    config = simulated_training.Config(task, side, steps, batch, lr, seed, WORKERS)
    return asdict(simulated_training.train(config)) | sent(by_step(counts.shares, WORKERS))


SYSTEM = System(
    "DCT, dynamic communication thresholding",
    "arXiv 2010.08899, KDD 2021",
    "dct(sparsity=0.99)",
    experiment,
    study,
    headline=Headline(
        "100× fewer bytes between workers, 20× between stages, no loss of quality",
        "{} fewer bytes between workers at {}; between stages {}",
        (
            "fashion-mnist: DCT: 100× fewer bytes sent",
            "fashion-mnist: DCT within 0.5 points of dense",
            "fashion-mnist: two stages within 0.5 points of one machine",
        ),
        "Top-k without a search at each step. The controller is ours: the published life span sent up to 20× "
        "of what was asked for.",
    ),
)
