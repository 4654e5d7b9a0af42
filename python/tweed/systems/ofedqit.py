"""OFedQIT (Park, Kwon, Hong, arXiv 2205.06491, 2022): online federated learning, quantised and intermittent.

Parts: `cadence.Intermittent` (who sends), `compress.Levels` (in which form), `Direct(weight=1/p)`:
`ofedqit()`. Here 100 virtual clients get one sample each per slot, in one process. Ours on top: a choice of
(p, L, s, b) for a budget of bytes, from a formula for the regret (`ofedqit_budget`).

The paper's claim: regret grows as the square root of time, as with full traffic; on MNIST 0.9798 running
accuracy at 4.6 % of the traffic, 0.9536 at 0.46 %, against 0.9862 and 0.9625. Here the stream is
Fashion-MNIST, once through: other pictures, harder, and fewer slots, so figures of the paper and ours cannot
be compared, only those within a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer

from tweed.systems.base import Notes, System
from tweed.systems.ofedqit_budget import choose
from tweed.systems.ofedqit_online import MakeOptimizer, Split, Told, learn
from tweed.systems.ofedqit_streams import (
    Learner,
    Stream,
    convolutions,
    lines,
    perceptron,
    pictures,
    regression,
)
from tweed.systems.ofedqit_study import study

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


class Decaying(SGD):
    """Gradient descent with steps of `first / sqrt(slots so far)`."""

    def __init__(self, params: list[Tensor], first: float, every: int) -> None:
        super().__init__(params, lr=first)
        self._first, self._every, self._rounds = first, every, 0

    def step(self, closure: Any = None) -> Any:
        """One step, smaller than the last."""
        self._rounds += 1
        for group in self.param_groups:
            group["lr"] = self._first / (self._rounds * self._every) ** 0.5
        return super().step(closure)


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


def _first(learner: Learner, stream: Stream) -> Tensor:
    """Gradients of the first slot's samples, which the choice of a split looks at."""
    return learner.gradients(learner.start, stream.x[0], stream.y[0])[1]


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
            split = choose(share, CLIENTS, _first(learner, stream), slots).split
            _run(notes, ("point", name, label, seed), learner, stream, split)


def _run(
    notes: Notes, which: tuple[str, str, str, int], learner: Learner, stream: Stream, split: Split
) -> None:
    kind, name, label, seed = which
    facts = {"kind": kind, "learner": name, "label": label, "seed": seed}
    if notes.has(**facts):
        return
    notes.tell(f"{name}, {label}, seed {seed}")
    told = learn(learner, stream, split, _adam, seed)
    notes.add(facts | asdict(split) | _figures(told, split, learner.start.numel()))


def _figures(told: Told, split: Split, numel: int) -> dict[str, Any]:
    slots, last = len(told.right), max(1, len(told.right) // 5)
    formula = told.messages * split.message_bits(numel) / 8
    full = slots * CLIENTS * 4 * numel
    return {
        "slots": slots,
        "accuracy": sum(told.right) / slots,
        "last_accuracy": sum(told.right[-last:]) / last,
        "last_loss": sum(told.losses[-last:]) / last,
        "traffic": told.sent_bytes / full,
        "share": split.share(numel),
        "sent_bytes": told.sent_bytes,
        "formula_bytes": formula,
    }


def _ablation(notes: Notes, slots: int) -> None:
    """All at one budget of bytes: how many pieces, how many levels, how long a round. What they cost, p
    pays."""
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
    best = [_best(stream, mark) for mark in marks]
    for probability, every, levels in ((1.0, 1, None), (0.1, 1, 1), (1.0, 10, 1), (0.1, 10, 1)):
        name = "OFedAvg" if levels is None else f"p={probability:g}, L={every}"
        notes.tell(f"regret: {name}")
        split = Split(probability, every, levels, 4)
        told = learn(regression(NUMEL), stream, split, _decaying(every))
        regret = [sum(told.losses[:mark]) - least for mark, least in zip(marks, best, strict=True)]
        points = [[mark, value / mark**0.5] for mark, value in zip(marks, regret, strict=True)]
        notes.add({"kind": "regret", "label": name, "points": points})


def _decaying(every: int) -> MakeOptimizer:
    return lambda params: Decaying(params, 5.0, every)


def _best(stream: Stream, slots: int) -> float:
    """The least that the losses of the first slots sum up to, with one model for all."""
    x, y = stream.x[:slots].reshape(-1, NUMEL).double(), stream.y[:slots].reshape(-1).double()
    solution = torch.linalg.lstsq(x, y[:, None]).solution[:, 0]
    return float((x @ solution - y).square().sum()) / 2 / CLIENTS


def _exact(notes: Notes) -> None:
    """L=1, p=1 and no quantiser beside OFedAvg written down plainly."""
    if notes.has(kind="exact"):
        return
    stream, learner = lines(CLIENTS, 50, NUMEL, seed=1), regression(NUMEL)
    ours = learn(learner, stream, Split(), _adam).params
    params = learner.start.clone()
    optimizer = _adam([params])
    for x, y in zip(stream.x, stream.y, strict=True):
        total = torch.zeros(NUMEL)
        for gradient in learner.gradients(params, x, y)[1]:
            total += gradient
        params.grad = total / CLIENTS
        optimizer.step()
    notes.add({"kind": "exact", "equal": bool(torch.equal(ours, params)), "slots": 50})


SYSTEM = System(
    "OFedQIT: online federated learning, quantised and intermittent",
    "arXiv 2205.06491, 2022",
    "ofedqit()",
    experiment,
    study,
)
