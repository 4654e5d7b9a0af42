"""One rank's plain loop: model, optimizers, data. It knows nothing of other ranks."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tests.loops.net import Net, batch
from tests.loops.program import AddGroup, Program, Step

LR, SCALE, NORM = 0.25, 4.0, 0.25


class Raised(Exception):
    """What a forward pass raises."""


class Loop:
    """What a user's program has.

    Args:
      program: what it will run.
      rank: whose data it has.
      seed: of the model's values.
      grouped: the group of `AddGroup` is in the optimizer already.
    """

    def __init__(self, program: Program, rank: int, seed: int = 0, *, grouped: bool = False) -> None:
        self.program, self.rank = program, rank
        self.model = Net(torch.float64 if program.double else torch.float32, seed, idle=program.idle)
        self.grouped = grouped or not program.has(AddGroup)
        self.optimizers = [self._optimizer(params) for params in self._parts()]
        if grouped and program.has(AddGroup):
            self.optimizers[0].add_param_group({"params": self.model.head, "lr": LR / 2})
        self.schedulers = [self.scheduler(optimizer) for optimizer in self.optimizers]
        self.scaler = torch.amp.GradScaler(
            "cpu", init_scale=SCALE, growth_interval=10**6, enabled=program.scaler
        )
        self.kept: list[tuple[Tensor, Tensor]] = []

    def _parts(self) -> list[list[nn.Parameter]]:
        """Per optimizer its parameters."""
        model, how = self.model, self.program.optimizers
        idle = [model.idle] if self.program.idle else []
        if self.program.has(AddGroup):
            return [[*model.body, *idle]]
        if how == "each":
            return [[param] for param in model.trained]
        return [[*model.body, *idle], model.head] if how == "two" else [[*model.trained, *idle]]

    def _optimizer(self, params: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(params, lr=LR, momentum=self.program.momentum)

    @staticmethod
    def scheduler(optimizer: torch.optim.Optimizer) -> Any:
        """Halves the learning rate at each step."""
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    def loss(self, data: int, number: int = 0, uses: str = "all", factor: float = 1.0) -> Tensor:
        """Of one backward pass of a batch, scaled."""
        whole = uses == "all" or (uses == "odd" and self.rank % 2 == 1)
        loss = (self.model(batch(self.rank, data, number), whole) - 0.5).square().mean()
        return self.scaler.scale(loss * factor)

    def raises(self, data: int) -> None:
        """A forward pass that does not come to its end."""
        handle = self.model.register_forward_hook(_raise)
        try:
            self.loss(data)
        finally:
            handle.remove()

    def losses(self, step: Step) -> Iterator[Tensor]:
        """Of each backward pass."""
        for number in range(step.passes):
            yield self.loss(step.data, number, step.uses)

    def held(self) -> list[nn.Parameter]:
        """The parameters that optimizers step."""
        groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]
        return [param for group in groups for param in group["params"]]

    def prepare(self, step: Step) -> None:
        """After the backward passes, before the step."""
        if self.program.scaler:
            for optimizer in self.optimizers:
                self.scaler.unscale_(optimizer)
        if step.clip:
            nn.utils.clip_grad_norm_(self.model.trained, NORM)

    def apply(self, step: Step) -> None:
        """Changes the parameters."""
        if step.by == "hand":
            self.by_hand()
            return
        for optimizer in self.optimizers:
            self.scaler.step(optimizer)
        self.update_scale()

    @torch.no_grad()
    def by_hand(self) -> None:
        """A step without a step of an optimizer."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for param in group["params"]:
                    if param.grad is not None:
                        param.data.add_(param.grad, alpha=-group["lr"])
        self.update_scale()

    def update_scale(self) -> None:
        """The scale stays as it is, so that residuals are of one scale."""
        if self.program.scaler:
            self.scaler.update(SCALE)

    def clear(self, how: str) -> None:
        """Clears all gradients of the model."""
        if how == "hand":
            for param in self.model.parameters():
                param.grad = None
        else:
            self.model.zero_grad(set_to_none=how == "none")

    def keep(self) -> list[Tensor | None]:
        """The gradients that there are, as a loop keeps them that does not clone."""
        grads = [param.grad for param in self.model.trained]
        self.kept += [(grad, grad.clone()) for grad in grads if grad is not None]
        return grads

    @torch.no_grad()
    def move(self, rebinds: bool = False) -> None:
        """Other values."""
        for param in self.model.trained:
            if rebinds:
                param.data = param.data * 0.75
            else:
                param.mul_(0.75)

    def freeze(self, thaw: bool) -> None:
        """The head."""
        for param in self.model.head:
            param.requires_grad_(thaw)

    def schedule(self) -> None:
        """The learning rates of all groups."""
        with warnings.catch_warnings():  # there need not have been a step
            warnings.simplefilter("ignore")
            for scheduler in self.schedulers:
                scheduler.step()

    def add_group(self) -> None:
        """Of the head, at half the rate."""
        self.optimizers[0].add_param_group({"params": self.model.head, "lr": LR / 2})
        self.schedulers[0] = self.scheduler(self.optimizers[0])
        self.grouped = True

    def state(self) -> dict[str, Any]:
        """What a program stores of itself."""
        parts = [self.model, *self.optimizers, *self.schedulers, self.scaler]
        return copy.deepcopy({str(number): part.state_dict() for number, part in enumerate(parts)})

    def load(self, state: dict[str, Any]) -> None:
        """Goes on from `state`."""
        parts = [self.model, *self.optimizers, *self.schedulers, self.scaler]
        for number, part in enumerate(parts):
            part.load_state_dict(state[str(number)])


def _raise(*_: object) -> None:
    raise Raised
