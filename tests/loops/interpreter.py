"""Runs one program on one rank, live."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

from tests.loops import program as ops
from tests.loops.attached import Live, Outcome
from tests.loops.kinds import keeps_step
from tests.loops.loop import Loop
from tests.loops.program import Program, Skip, Step
from tweed.errors import TweedError
from tweed.hub.replay import replay


class Interpreter:
    """Runs a program's operations in their order.

    Args:
      program: what is run.
      rank: of this process.
      groups: the group for each size.
    """

    def __init__(self, program: Program, rank: int, groups: dict[int, dist.ProcessGroup]) -> None:
        self.program, self.rank, self.groups = program, rank, groups
        self.loop = Live(program, rank, groups[program.ranks])
        self.outcome = Outcome()

    def perform(self, operation: ops.Operation) -> None:
        """One operation."""
        loop = self.loop
        match operation:
            case Step():
                loop.step(operation)
            case Skip():
                loop.skip(operation)
            case ops.Combine(data):
                loop.combine(data)
            case ops.Rebind(how):
                loop.rebind(how)
            case ops.Move(rebinds):
                loop.move(rebinds)
            case ops.Teach():
                loop.model.teach()
            case ops.Evaluate():
                self._look()
            case ops.Finish():
                loop.run.finish()
            case ops.Schedule():
                loop.schedule()
            case ops.Freeze(thaw):
                loop.freeze(thaw)
            case ops.AddGroup():
                loop.add_group()
            case ops.Resume(data):
                self._resume(data)
            case _:
                self._misuse(operation)

    def _misuse(self, operation: ops.Operation) -> None:
        """What a strategy may refuse."""
        loop = self.loop
        match operation:
            case ops.Fewer(data):
                self._fewer(data)
            case ops.Cast(data):
                loop.model.to(torch.float32 if self.program.double else torch.float64)
                loop.step(Step(data))
            case ops.Foreign(data):
                loop.foreign(data)
            case ops.Unfreeze(data):
                loop.model.idle.requires_grad_(True)
                loop.step(Step(data))
            case ops.ClearSome(data):
                loop.loss(data).backward()
                for param in loop.model.head:
                    param.grad = None
                loop.step(Step(data + 1))
            case ops.Differ(data):
                if self.rank == 0:
                    loop.skip(Skip(data))
                else:
                    loop.step(Step(data))
                loop.step(Step(data + 1))

    def _look(self) -> None:
        before = self.loop.model.flat()
        with self.loop.run.averaged():
            self.outcome.looks.append(self.loop.model.flat())
        if not torch.equal(before, self.loop.model.flat()):
            self.outcome.wrong.append("the model is another one after run.averaged()")

    def _resume(self, data: int | None) -> None:
        loop = self.loop
        if data is not None:
            loop.passes(Step(data))
        file = loop.stored()
        self.loop = loop.resumed(file, self.groups[self.program.ranks])
        if data is not None:
            self.loop.step(Step(data))

    def _fewer(self, data: int) -> None:
        file, left = self.loop.stored(), self.program.ranks - 1
        if self.rank == left:
            self.outcome.left = True
            return
        self.loop = self.loop.resumed(file, self.groups[left], same_plan=False)
        self.loop.step(Step(data))

    def work(self) -> None:
        """All operations."""
        for operation in self.program.operations:
            self.perform(operation)
            if self.outcome.left:
                return
        self.finish()

    def serve(self) -> None:
        """The hub's part; and its log leads to the same model."""
        loop, outcome, strategy = self.loop, self.outcome, self.loop.run.strategy
        outcome.serves = True
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "log")
            loop.run.serve(trusted=lambda number: loop.trusted(100 + number), log=log)
            again = Loop(self.program, self.rank, seed=98)
            replay(log, again.model, again.optimizers[0], strategy)
        self.end()
        if not torch.equal(again.model.flat(), loop.model.flat()):
            outcome.wrong.append("the hub's log, replayed, leads to another model")

    def finish(self) -> None:
        """The end of the program."""
        self.loop.run.finish()
        self.end()

    def end(self) -> None:
        """What there is then."""
        loop, outcome = self.loop, self.outcome
        outcome.flat = loop.model.flat()
        model = loop.model
        outcome.equal = {
            name: tensor.detach().clone()
            for name, tensor in (*model.named_parameters(), *model.named_buffers())
            if tensor.is_floating_point() and (loop.run.strategy.hub is None or tensor.requires_grad)
        }
        if not keeps_step(self.program.strategy):
            outcome.equal = {}
        if any(not torch.equal(*pair) for pair in loop.kept):
            outcome.wrong.append("a gradient that was kept has other values now")


def run_program(program: Program, rank: int, groups: dict[int, dist.ProcessGroup]) -> Outcome:
    """What one rank has at the end; an error of tweed is part of it."""
    outcome = Outcome()
    interpreter = None
    try:
        interpreter = Interpreter(program, rank, groups)
        outcome = interpreter.outcome
        if interpreter.loop.run.serves:
            interpreter.serve()
        else:
            interpreter.work()
    except TweedError as error:
        outcome.refused = f"{type(error).__name__}: {error}"
    finally:
        if interpreter is not None:
            interpreter.loop.run.detach()
    return outcome
