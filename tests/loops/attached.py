"""Runs one program on one rank, live: the loop of a user, with `tweed.attach`."""

from __future__ import annotations

import io
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

import tweed
from tests.loops import program as ops
from tests.loops.kinds import keeps_step, strategy_of
from tests.loops.loop import Loop, Raised
from tests.loops.program import Program, Skip, Step
from tweed.attach.run import Run
from tweed.server import replay
from tweed.strategy import Strategy


@dataclass
class Outcome:
    """What one rank has at the end.

    Attributes:
      flat: all that is trained.
      looks: what `Evaluate` saw.
      equal: what must be the same on all ranks, by name.
      wrong: laws that this rank saw broken.
      refused: name and text of the error that the run raised; empty: none.
      left: this rank was not there to the end.
      serves: it is a hub.
    """

    flat: Tensor | None = None
    looks: list[Tensor] = field(default_factory=list)
    equal: dict[str, Tensor] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    refused: str = ""
    left: bool = False
    serves: bool = False


class Live(Loop):
    """A loop that is attached."""

    def __init__(
        self,
        program: Program,
        rank: int,
        group: dist.ProcessGroup,
        seed: int = 0,
        *,
        strategy: Strategy | None = None,
        grouped: bool = False,
    ) -> None:
        super().__init__(program, rank, seed, grouped=grouped)
        self.group = group
        chosen = strategy or strategy_of(program.strategy)
        if chosen.hub is not None and rank == chosen.hub.rank and chosen.exchange != "gradient":
            self.optimizers[0].param_groups[0]["lr"] = 1.0  # movements count as they are
        bucket_bytes = 2**20 if program.buckets else 1
        self.run: Run = tweed.attach(
            self.model, self.optimizers, chosen, group=group, bucket_bytes=bucket_bytes
        )

    def step(self, step: Step) -> None:
        """One batch."""
        if step.by == "closure":
            self.optimizers[0].step(lambda: self._closure(step))  # type: ignore[arg-type]
        elif step.by == "backward":
            self._steps_within(step)
        else:
            self._passes(step)
            self._between(step.between)
            self.prepare(step)
            if step.keep:
                self.keep()
            self.apply(step)
        self.clear(step.clear)

    def _passes(self, step: Step) -> None:
        for number, loss in enumerate(self.losses(step), start=1):
            quiet = number < step.passes and not step.sync
            with self.run.no_sync() if quiet else nullcontext():
                loss.backward()

    def _closure(self, step: Step) -> Tensor:
        self.clear(step.clear)
        loss = self.loss(step.data, uses=step.uses)
        loss.backward()
        return loss

    def _steps_within(self, step: Step) -> None:
        optimizers = dict(zip(self.model.trained, self.optimizers, strict=True))

        def at_once(param: Tensor) -> None:
            optimizers[param].step()  # type: ignore[index]
            param.grad = None

        hooks = [param.register_post_accumulate_grad_hook(at_once) for param in self.model.trained]
        try:
            self._passes(step)
        finally:
            for hook in hooks:
                hook.remove()

    def _between(self, what: str) -> None:
        if what == "rebind":
            self.rebind("data")
        elif what == "averaged":
            with self.run.averaged():
                pass
        elif what == "state":
            self.run.state_dict()
        elif what == "forward":
            self.model.eval()
            with torch.no_grad():
                self.loss(0)
            self.model.train()

    def skip(self, skip: Skip) -> None:
        """A batch that is thrown away."""
        with self.run.no_sync() if skip.quiet else nullcontext():
            if skip.why == "raised":
                try:
                    self.raises(skip.data)
                except Raised:
                    return
            self.loss(skip.data, factor=float("inf") if skip.why == "overflow" else 1.0).backward()
        if skip.keep:
            self.keep()
        if skip.why == "overflow":
            for optimizer in self.optimizers:
                self.scaler.step(optimizer)
            self.update_scale()
        self.clear(skip.clear)

    def combine(self, data: int) -> None:
        """Gradients of two tasks, added by hand."""
        tasks = []
        for number in range(2):
            self.loss(data, number).backward()
            tasks.append(self.keep())
            self.clear("none")
        for param, pair in zip(self.model.trained, zip(*tasks, strict=True), strict=True):
            there = [grad for grad in pair if grad is not None]
            param.grad = sum(there[1:], start=there[0]) if there else None
        step = Step(data)
        self.prepare(step)
        self.apply(step)
        self.clear("none")

    @torch.no_grad()
    def rebind(self, how: str) -> None:
        """New memory, same values."""
        model = self.model
        if how == "data":
            for param in model.parameters():
                param.data = param.data.clone()
        elif how == "vector":
            vector = torch.cat([param.reshape(-1) for param in model.trained])  # of any memory format
            nn.utils.vector_to_parameters(vector, model.trained)
        elif how == "swap":
            own = [param.data for param in model.trained]
            for param in model.trained:
                param.data = param.data * 0.5
            model.eval()
            self.loss(0)
            model.train()
            for param, data in zip(model.trained, own, strict=True):
                param.data = data
        elif how == "format":
            model.kernel.data = model.kernel.data.contiguous(memory_format=torch.channels_last)
        elif how == "buffer":
            model.running = model.running.clone()
        elif how == "parameter":
            self._assign()

    def _assign(self) -> None:
        """New parameters in the same slots, which the optimizers hold too."""
        before = dict(self.model.named_parameters())
        state = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(state, assign=True)
        new = {before[name]: param for name, param in self.model.named_parameters()}
        for old, param in new.items():
            param.requires_grad_(old.requires_grad)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["params"] = [new[param] for param in group["params"]]
            for old, param in new.items():
                if old in optimizer.state:
                    optimizer.state[param] = optimizer.state.pop(old)

    def stored(self) -> bytes:
        """As a file."""
        file = io.BytesIO()
        torch.save({"loop": self.state(), "run": self.run.state_dict()}, file)
        return file.getvalue()

    def resumed(self, file: bytes, group: dist.ProcessGroup, *, same_plan: bool = True) -> Live:
        """Another program that goes on from a file."""
        self.run.detach()
        strategy = self.run.strategy
        other = Live(self.program, self.rank, group, 99, strategy=strategy, grouped=self.grouped)
        try:
            state = torch.load(io.BytesIO(file), weights_only=True)
            if self.model.head_bias.requires_grad is False:
                other.freeze(thaw=False)
            if not same_plan:
                state["run"]["plan"] = None
            other.load(state["loop"])
            other.run.load_state_dict(state["run"])
        except BaseException:
            other.run.detach()
            raise
        other.kept = self.kept
        return other

    def trusted(self, data: int) -> Tensor:
        """The loss of samples that a hub trusts; statistics stay as they are."""
        self.model.eval()
        loss = self.loss(data)
        self.model.train()
        return loss

    def foreign(self, data: int) -> None:
        """A step of an optimizer that attach does not know."""
        self.loss(data).backward()
        torch.optim.SGD(self.model.parameters(), lr=LR_OF_OTHER).step()
        self.clear("none")


LR_OF_OTHER = 0.125


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
            loop._passes(Step(data))
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
    except tweed.errors.TweedError as error:
        outcome.refused = f"{type(error).__name__}: {error}"
    finally:
        if interpreter is not None:
            interpreter.loop.run.detach()
    return outcome
