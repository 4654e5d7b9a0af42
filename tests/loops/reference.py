"""What is right for `every_step`, `urgent`, `local_steps` and `diloco`: twenty lines of torch, all ranks'
models in one process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tests.loops import program as ops
from tests.loops.kinds import every
from tests.loops.loop import Loop
from tests.loops.program import Program, Step


@dataclass
class Expected:
    """What is right at the end, on all ranks, and what evaluations see."""

    flat: Tensor
    looks: list[Tensor] = field(default_factory=list)


class Together:
    """All ranks of a program in one process. The program is plain, see `laws`."""

    def __init__(self, program: Program) -> None:
        name = program.strategy.partition(":")[0]
        self.hub = name.startswith("hub")
        self.loops = [Loop(program, rank) for rank in range(int(self.hub), program.ranks)]
        self.shares_gradients = name in ("every_step", "urgent", "hub")
        self.outer = (0.7, 0.9) if name == "diloco" else None
        self.every, self.steps = every(program.strategy), 0
        self.start = [param.detach().clone() for param in self.loops[0].model.trained]
        self.momentum = [torch.zeros_like(param) for param in self.start]
        self.looks: list[Tensor] = []

    def step(self, step: Step) -> None:
        for number in range(step.passes):
            for loop in self.loops:
                loop.loss(step.data, number, step.uses).backward()
            if self.shares_gradients and not self.hub and (step.sync or number == step.passes - 1):
                self.average_gradients()
        for loop in self.loops:
            loop.prepare(step)
        if self.shares_gradients and self.hub:  # it takes what is there when a worker steps
            self.average_gradients()
        for loop in self.loops:
            loop.apply(step)
            loop.clear(step.clear)
        self.steps += step.by != "hand"
        if not self.shares_gradients and self.steps == self.every:
            self.average_models(self.outer)

    @torch.no_grad()
    def average_gradients(self) -> None:
        for params in zip(*(loop.model.trained for loop in self.loops), strict=True):
            there = [param.grad for param in params if param.grad is not None]
            mean = sum(there[1:], start=there[0].clone()) / len(params) if there else None
            for param in params:
                param.grad = None if mean is None else mean.clone()

    @torch.no_grad()
    def average_models(self, outer: tuple[float, float] | None) -> None:
        every = zip(self.start, self.momentum, *(loop.model.trained for loop in self.loops), strict=True)
        for start, momentum, *params in every:
            moved = torch.stack(params).mean(0) - start
            if outer is not None:
                lr, share = outer
                momentum.mul_(share).add_(moved)
                moved = lr * (moved + share * momentum)
            start.add_(moved)
            for param in params:
                param.copy_(start)
        self.steps = 0

    def perform(self, operation: ops.Operation) -> None:
        match operation:
            case Step():
                self.step(operation)
            case ops.Evaluate():
                self.looks.append(torch.stack([loop.model.flat() for loop in self.loops]).mean(0))
            case ops.Finish():
                self.finish()
            case ops.Fewer(data):
                self.loops.pop()
                self.step(Step(data))
            case ops.ClearSome(data):
                self.clear_some(data)
            case _:
                for loop in self.loops:
                    _alone(loop, operation)

    def clear_some(self, data: int) -> None:
        for loop in self.loops:
            loop.loss(data).backward()
        if self.shares_gradients:
            self.average_gradients()
        for loop in self.loops:
            for param in loop.model.head:
                param.grad = None
        self.step(Step(data + 1))

    def finish(self) -> None:
        """What was moved by hand alone is no round, and no movement for an outer optimizer."""
        if not self.shares_gradients:
            self.average_models(self.outer if self.steps else None)


def _alone(loop: Loop, operation: ops.Operation) -> None:
    match operation:
        case ops.Move():
            loop.move()
        case ops.Schedule():
            loop.schedule()
        case ops.Freeze(thaw):
            loop.freeze(thaw)
        case ops.AddGroup():
            loop.add_group()
        case _:
            raise ValueError(f"{operation!r} is in no plain program")


def expected(program: Program) -> Expected:
    """What is right for a plain program."""
    together = Together(program)
    operations: Sequence[ops.Operation] = program.operations
    for operation in operations:
        together.perform(operation)
    together.finish()
    return Expected(together.loops[0].model.flat(), together.looks)
