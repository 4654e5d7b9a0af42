"""The loop of a user, with `tweed.attach`: what each habit does on one rank."""

from __future__ import annotations

import io
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn

import tweed
from tests.loops.kinds import strategy_of
from tests.loops.loop import LR, Loop, Raised
from tests.loops.program import Program, Skip, Step
from tweed.hooks.run import Run
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
            self.passes(step)
            self._between(step.between)
            self.prepare(step)
            if step.keep:
                self.keep()
            self.apply(step)
        self.clear(step.clear)

    def passes(self, step: Step) -> None:
        """Backward passes of a batch, and its exchanges."""
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
            self.passes(step)
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
        torch.optim.SGD(self.model.parameters(), lr=LR / 2).step()
        self.clear("none")
