"""A program of members that come and go: each of its steps is an iteration over samples that all share.

What is right is one process that learns the same samples in the same order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

import tweed
from tests.loops import program as ops
from tests.loops.attached import Live, Outcome
from tests.loops.loop import Loop
from tests.loops.net import INPUTS
from tests.loops.program import Operation, Program, Step
from tests.loops.reference import Expected
from tweed.data.sampler import GlobalOrder
from tweed.elastic import Elastic, start

SAMPLES, BATCH, SEED = 60, 12, 3


def _samples() -> Tensor:
    return torch.randn(SAMPLES, INPUTS, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


class _Given(Loop):
    """Learns the samples that it is given."""

    x: Tensor

    def loss(self, data: int, number: int = 0, uses: str = "all", factor: float = 1.0) -> Tensor:
        """Of these."""
        return (self.model(self.x) - 0.5).square().mean()


class _Member(_Given, Live):
    """With a run of members."""

    def __init__(self, program: Program, rank: int, size: int, store: Any) -> None:
        Loop.__init__(self, program, rank)
        self.x = _samples()[:BATCH]
        control = start(store, rank, size, Elastic(1, size))
        self.run = tweed.attach(self.model, self.optimizers[0], elastic=control)


def _perform(loop: Loop, operation: Operation) -> None:
    match operation:
        case ops.Move(rebinds):
            loop.move(rebinds)
        case ops.Schedule():
            loop.schedule()
        case ops.Teach():
            loop.model.teach()
        case ops.Rebind(how) if isinstance(loop, Live):
            loop.rebind(how)


def _count(program: Program) -> int:
    return sum(isinstance(operation, Step) for operation in program.operations)


def run_member(program: Program, rank: int, store: Any) -> Outcome:
    """What one member has at the end."""
    outcome, left = Outcome(), list(program.operations)
    loop = _Member(program, rank, program.ranks, store)
    try:
        with loop.run as run:
            batches = run.batches(TensorDataset(_samples()), _count(program), BATCH, seed=SEED)
            for (loop.x,) in batches:
                while not isinstance(left[0], Step):
                    _perform(loop, left.pop(0))
                loop.step(left.pop(0))
            for operation in left:
                _perform(loop, operation)
    except tweed.errors.TweedError as error:
        outcome.refused = f"{type(error).__name__}: {error}"
        return outcome
    outcome.flat = loop.model.flat()
    named = (*loop.model.named_parameters(), *loop.model.named_buffers())
    outcome.equal = {name: one.detach().clone() for name, one in named if one.is_floating_point()}
    return outcome


def expected(program: Program) -> Expected:
    """One process alone, without tweed."""
    loop, order, at = _Given(program, 0), GlobalOrder(SAMPLES, seed=SEED), 0
    for operation in program.operations:
        if isinstance(operation, Step):
            loop.x = _samples()[order.samples(range(at, at + BATCH))]
            loop.loss(operation.data).backward()
            loop.prepare(operation)
            loop.apply(operation)
            loop.clear(operation.clear)
            at += BATCH
        else:
            _perform(loop, operation)
    return Expected(loop.model.flat())
