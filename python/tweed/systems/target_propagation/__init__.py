"""Fixed-weight difference target propagation (Shibuya, Inoue, Kawakami, Sato, AAAI 2023, arXiv 2212.10352).

Parts: layers, targets and feedback in `workloads.target_propagation`; data parallel by `tweed.attach`, and in
stages by `tweed.torch.stage_link`, as gradients are.

The paper's claim: feedback weights that stay as they were drawn do, and test accuracy is above that of DTP,
whose feedback weights are trained. That training is most of DTP's time, and of its bytes.

contenders      what is compared
measured        what is learned, and how long steps take
measured_live   bytes on a link, and a pipeline
report          goals and tables
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from tweed.report.notes import Line, Notes, find
from tweed.systems import Headline, System
from tweed.systems.harness.learning_rates import Grid, best_lr
from tweed.systems.harness.tuning import Side, together, tuned
from tweed.systems.target_propagation.contenders import CONTENDERS, EPOCHS, FIXED_KEY, SEARCHED, WAYS
from tweed.systems.target_propagation.measured import Contender, Setting, run, step_times
from tweed.systems.target_propagation.measured_live import data_parallel, pipeline
from tweed.systems.target_propagation.report import study

SEEDS = range(5)
SMALL = Setting("digits", 16.0, hidden=2, width=32, batch=64)


def experiment(notes: Notes, quick: bool) -> None:
    """Cost: an hour of one core, most of it for DTP; half an hour with two. Quick: ten seconds."""
    setting, epochs, seeds = (SMALL, 1, SEEDS[:1]) if quick else (Setting(), EPOCHS, SEEDS)
    searched, tries = (1, 1) if quick else (SEARCHED, 6)
    tuned(notes, [_search(setting, key, searched, tries) for key in _searched()], 1 if quick else None)
    _judged(notes, setting, epochs, seeds, 1 if quick else None)
    pair = {"fixed": WAYS[FIXED_KEY], "dtp": Contender(None)}
    data_parallel(notes, setting, pair, ranks=2)
    pipeline(notes, setting, at=2)
    step_times(notes, setting, pair, rounds=1 if quick else 31)


def _searched() -> list[str]:
    """Contenders with a learning rate of their own; the other ones have that of the first."""
    return [FIXED_KEY, *(key for key in WAYS if key.startswith("dtp")), "fixed, plain"]


def _search(setting: Setting, key: str, epochs: int, tries: int) -> Side:
    way = WAYS[key]
    first = 9.0 if not way.normalise else 3.0
    facts = {"kind": "none", "contender": key}
    return Side(key, facts, partial(run, setting, way, epochs), Grid(first, tries=tries), seeds=())


def _judged(notes: Notes, setting: Setting, epochs: int, seeds: range, processes: int | None) -> None:
    """Lines of kind "learned": each contender at its best rate over seeds."""
    jobs = []
    for contender in CONTENDERS:
        key = _best_dtp(notes) if contender == "dtp" else contender
        rate = best_lr(notes.lines, key if key in _searched() else FIXED_KEY)
        assert rate is not None  # it was searched
        facts = {"kind": "learned", "contender": contender, "way": key, "lr": rate}
        jobs += [
            (setting, facts | {"seed": seed}, epochs)
            for seed in (seeds if contender in ("fixed", "dtp") else seeds[:3])
            if not notes.has(kind="learned", contender=contender, seed=seed)
        ]
    for line in together(_learned, jobs, processes):
        notes.log(f"{line['contender']}, seed {line['seed']}: {line['accuracy']:.2%}")
        notes.add(line)


def _best_dtp(notes: Notes) -> str:
    """DTP with the rate of its feedback weights that was best."""

    def score(key: str) -> float:
        found = find(notes.lines, kind="search", side=key, lr=best_lr(notes.lines, key))
        return -1.0 if found is None or found["score"] is None else float(found["score"])

    return max((key for key in WAYS if key.startswith("dtp")), key=score)


def _learned(setting: Setting, facts: Mapping[str, object], epochs: int) -> Line:
    way = replace(WAYS[str(facts["way"])])
    return {**facts, **run(setting, way, epochs, float(str(facts["lr"])), int(str(facts["seed"])))}


SYSTEM = System(
    "FW-DTP, fixed-weight difference target propagation",
    "AAAI 2023, arXiv 2212.10352",
    "target_network(sizes, FixedFeedback(seed=0))",
    experiment,
    study,
    headline=Headline(
        "feedback weights that are never trained do better than those that are",
        "MNIST: error {}; bytes {} of DTP's",
        (f"MNIST, {EPOCHS} epochs: error below 3 %", "bytes of a step beside DTP's: a sixth"),
        "Training without back-propagation: a layer's update needs its input and its target alone.",
    ),
)
