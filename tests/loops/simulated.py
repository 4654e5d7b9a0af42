"""What is right for other strategies of a group: `tweed.simulate.Workers`, the same stages without hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.loops import program as ops
from tests.loops.kinds import Kind, is_timed, kind_of, measures, stands_off, strategy_of
from tests.loops.loop import LR, NORM, SCALE, Loop
from tests.loops.net import Net
from tests.loops.program import Program, Step
from tests.loops.reference import Expected
from tweed.simulate.workers import Worker, Workers


def can_simulate(program: Program) -> bool:
    """Whether workers of one process do what the program does: they know no gradient that is None, average
    nothing beside an exchange, and exchange one buffer of float32."""
    if kind_of(program.strategy) in (Kind.HUB, Kind.MEMBERS):
        return False
    name, steps = program.strategy, [one for one in program.operations if isinstance(one, Step)]
    gradients = kind_of(name) is not Kind.MODEL
    if program.double or not program.buckets or is_timed(name) or name.startswith("ltp"):
        return False
    if program.has(ops.Fewer, ops.ClearSome, ops.Differ):
        return False
    if gradients and any(step.sync and step.passes > 1 for step in steps):
        return False
    if any(step.by == "hand" for step in steps) and (not gradients or measures(name)):
        return False
    # What was moved by hand is taken into the common model by `finish`, which workers do not know.
    return not program.has(ops.Finish) or gradients or not (stands_off(name) or program.has(ops.Move))


class Stepping(torch.optim.SGD):
    """Does something with the gradients before it steps."""

    before: Callable[[], Any] = staticmethod(lambda: None)

    def step(self, closure: Any = None) -> Any:
        """A step."""
        self.before()
        return super().step(closure)


class Simulated:
    """A plain program over virtual workers."""

    def __init__(self, program: Program) -> None:
        self.program = program
        backwards = kind_of(program.strategy) is not Kind.MODEL
        model = Net(torch.float32, backwards=backwards)
        self.workers = Workers(model, self._optimizer, strategy_of(program.strategy), program.ranks)
        self.loops = [Loop(program, rank) for rank in range(program.ranks)]
        for loop, worker in zip(self.loops, self.workers.all, strict=True):
            loop.model = worker.model
        self.looks: list[Tensor] = []
        self.head_rate = 0.0 if program.has(ops.AddGroup) else 1.0  # as a share of the body's

    def _optimizer(self, params: list[nn.Parameter]) -> Stepping:
        return Stepping(params, lr=LR, momentum=self.program.momentum)

    def step(self, step: Step) -> None:
        """One batch at each worker."""
        for loop, worker in zip(self.loops, self.workers.all, strict=True):
            worker.optimizer.before = lambda loop=loop, worker=worker: self._prepare(loop, worker, step)

        def loss(rank: int, model: nn.Module) -> Tensor:
            *others, last = range(step.passes)
            for number in others:
                self.loops[rank].loss(step.data, number, step.uses).backward()
            return self.loops[rank].loss(step.data, last, step.uses)

        self.workers.step(loss)

    def _prepare(self, loop: Loop, worker: Worker, step: Step) -> None:
        if self.program.scaler:  # of what the optimizer holds
            for param in loop.model.trained if self.head_rate else loop.model.body:
                param.grad.mul_(1 / SCALE)
        if step.clip:
            nn.utils.clip_grad_norm_(loop.model.trained, NORM)
        for param in loop.model.head:
            param.grad.mul_(self.head_rate)

    def perform(self, operation: ops.Operation) -> None:
        """One operation at all workers."""
        match operation:
            case Step():
                self.step(operation)
            case ops.Evaluate():
                self.looks.append(self.average())
            case ops.Finish():
                if kind_of(self.program.strategy) is Kind.MODEL:  # models of the others never differ
                    self.workers.finish()
            case ops.Schedule():
                for worker in self.workers.all:
                    worker.optimizer.param_groups[0]["lr"] *= 0.5
            case ops.AddGroup():
                self.head_rate = LR / 2 / self.workers.all[0].optimizer.param_groups[0]["lr"]
            case ops.Move():
                for loop in self.loops:
                    loop.move()
            case ops.Freeze(thaw):
                for loop in self.loops:
                    loop.freeze(thaw)

    def average(self) -> Tensor:
        """The average of all workers' models."""
        model = self.workers.all[0].model
        assert isinstance(model, Net)
        frozen = not model.head_bias.requires_grad
        self.loops[0].freeze(thaw=True)  # else the average is made without it
        average = self.workers.average()
        self.loops[0].freeze(thaw=not frozen)
        assert isinstance(average, Net)
        return average.flat()


def expected(program: Program) -> Expected:
    """What is right for a plain program that `can_simulate`."""
    simulated = Simulated(program)
    for operation in program.operations:
        simulated.perform(operation)
    simulated.workers.finish()
    return Expected(simulated.average(), simulated.looks)
