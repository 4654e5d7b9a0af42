"""OFedQIT (Park, Kwon, Hong, arXiv 2205.06491, 2022): online federated learning, quantised and intermittent.

Parts: `cadence.Intermittent` (who sends), `compress.Levels` (in which form), `Direct(weight=1/p)`:
`ofedqit()`. Here 100 virtual clients get one sample each per slot, in one process. Ours on top: a choice of
(p, L, s, b) for a budget of bytes, from a formula for the regret (`online_learning.choose`).

The paper's claim: regret grows as the square root of time, as with full traffic; on MNIST 0.9798 running
accuracy at 4.6 % of the traffic, 0.9536 at 0.46 %, against 0.9862 and 0.9625. Here the stream is
Fashion-MNIST, once through: other pictures, harder, and fewer slots, so figures of the paper and ours cannot
be compared, only those within a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache, partial

import torch
from torch import Tensor
from torch.optim import Adam, Optimizer

from tweed.data.streams import Learner, Stream, convolutions, lines, perceptron, pictures, regression
from tweed.experiments.notes import Notes
from tweed.experiments.online_learning import Decaying, Split, averaged, choose, learn, least_squares
from tweed.systems import System
from tweed.systems.reports.ofedqit import study

CLIENTS = 100
#: Budgets, as shares of OFedAvg's traffic: those of the paper's two points on MNIST, and its successor's.
MUCH, LITTLE, HUNDREDTH = 0.046, 0.0046, 0.01
#: By name: the model, slots, and how many seeds.
LEARNERS: dict[str, tuple[Callable[[], Learner], int, int]] = {
    "perceptron": (perceptron, 600, 2),
    "convolutions": (convolutions, 400, 1),
}


def _adam(params: list[Tensor]) -> Optimizer:
    return Adam(params, lr=1e-3)


def experiment(notes: Notes, quick: bool) -> None:
    """Cost: some ten minutes on one core; quick: less than one."""
    torch.set_num_threads(1)
    _exact(notes)
    _regret(notes, 300 if quick else 3_000)
    for name, (make, slots, seeds) in list(LEARNERS.items())[: 1 if quick else None]:
        for seed in range(1 if quick else seeds):
            _points(notes, name, make(), 30 if quick else slots, seed)
    _ablation(notes, 30 if quick else 300)


@cache
def _pictures(slots: int, seed: int) -> Stream:
    return pictures(CLIENTS, slots, seed)


def _points(notes: Notes, name: str, learner: Learner, slots: int, seed: int) -> None:
    """The paper's points, and ours at the same traffic."""
    stream = _pictures(slots, seed)
    theirs = {
        "OFedAvg": Split(),
        "OFedAvg, p=0.1": Split(0.1),
        "OFedQIT, 4.6 %": Split(1.0, 2, 1, 1000),
        "OFedQIT, 0.46 %": Split(0.1, 2, 1, 1000),
    }
    budgets = {"chosen, 4.6 %": theirs["OFedQIT, 4.6 %"], "chosen, 0.46 %": theirs["OFedQIT, 0.46 %"]}
    for label, split in theirs.items():
        _run(notes, ("point", name, label, seed), learner, stream, split)
    for label, same in (budgets | {"chosen, 1 %": None}).items():
        if not notes.has(kind="point", learner=name, label=label, seed=seed):
            share = HUNDREDTH if same is None else same.share(learner.start.numel())
            _, gradients = learner.gradients(learner.start, stream.x[0], stream.y[0])  # of the first slot
            split = choose(share, CLIENTS, gradients, slots).split
            _run(notes, ("point", name, label, seed), learner, stream, split)


def _run(
    notes: Notes, which: tuple[str, str, str, int], learner: Learner, stream: Stream, split: Split
) -> None:
    kind, name, label, seed = which
    facts = {"kind": kind, "learner": name, "label": label, "seed": seed}
    if notes.has(**facts):
        return
    notes.log(f"{name}, {label}, seed {seed}")
    notes.add(facts | asdict(split) | learn(learner, stream, split, _adam, seed).facts(split, CLIENTS))


def _ablation(notes: Notes, slots: int) -> None:
    """All at one budget: how many pieces, how many levels, how long a round. What they cost, p pays."""
    learner, stream = perceptron(), _pictures(slots, 0)
    numel = learner.start.numel()
    for label, split in _tries(numel):
        _run(notes, ("ablation", "perceptron", label, 0), learner, stream, split)


def _tries(numel: int) -> Iterator[tuple[str, Split]]:
    for pieces in (1, 30, 100, 400, 1000, 3200):
        yield f"b={pieces}, s=1, L=2", _afforded(2, 1, pieces, numel)
    for levels in (1, 3, 7, 15):
        yield f"s={levels}, b=400, L=2", _afforded(2, levels, 400, numel)
    for every in (1, 2, 3, 5, 10):
        yield f"L={every}, s=7, b=400", _afforded(every, 7, 400, numel)


def _afforded(every: int, levels: int, pieces: int, numel: int) -> Split:
    """The split with the probability that a hundredth of the traffic allows."""
    whole = Split(1.0, every, levels, pieces)
    return Split(min(1.0, HUNDREDTH / whole.share(numel)), every, levels, pieces)


NUMEL = 20


def _regret(notes: Notes, slots: int) -> None:
    """Summed loss beyond that of the best fixed model in hindsight, over the square root of time; convex."""
    if notes.has(kind="regret", label="p=0.1, L=10"):
        return
    stream = lines(CLIENTS, slots, NUMEL, seed=0)
    marks = [slots * part // 10 for part in range(1, 11)]
    best = [least_squares(stream, mark) for mark in marks]
    for probability, every, levels in ((1.0, 1, None), (0.1, 1, 1), (1.0, 10, 1), (0.1, 10, 1)):
        name = "OFedAvg" if levels is None else f"p={probability:g}, L={every}"
        notes.log(f"regret: {name}")
        split = Split(probability, every, levels, 4)
        outcome = learn(regression(NUMEL), stream, split, partial(Decaying, first=5.0, every=every))
        regret = [sum(outcome.losses[:mark]) - least for mark, least in zip(marks, best, strict=True)]
        points = [[mark, value / mark**0.5] for mark, value in zip(marks, regret, strict=True)]
        notes.add({"kind": "regret", "label": name, "points": points})


def _exact(notes: Notes) -> None:
    """L=1, p=1 and no quantiser beside OFedAvg written down plainly."""
    if not notes.has(kind="exact"):
        stream, learner = lines(CLIENTS, 50, NUMEL, seed=1), regression(NUMEL)
        ours = learn(learner, stream, Split(), _adam).params
        equal = bool(torch.equal(ours, averaged(learner, stream, _adam)))
        notes.add({"kind": "exact", "equal": equal, "slots": 50})


SYSTEM = System(
    "OFedQIT: online federated learning, quantised and intermittent",
    "arXiv 2205.06491, 2022",
    "ofedqit()",
    experiment,
    study,
)
