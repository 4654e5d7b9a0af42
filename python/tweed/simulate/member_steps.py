"""What virtual members compute between a task and its contribution: many at once, where the model allows it.

A small model spends most of a step between operations, not in them. So the steps of members that compute at
the same time are taken side by side: a row for each in one matrix of parameters, one of gradients. Members
that need more steps go on when the others are done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from tweed.cadence import StepDone
from tweed.simulate.flat import Flat
from tweed.simulate.workers import MakeOptimizer, copies
from tweed.strategy import Strategy

#: The loss of a member's next batch, by the member and the batch's number, with the model it is given.
BatchLoss = Callable[[int, nn.Module, int], Tensor]
#: Values of the models that are computed on side by side: more do not fit into caches, and gain nothing.
_AT_ONCE = 1 << 23


@dataclass(frozen=True, slots=True)
class SampleLoss:
    """A `BatchLoss` by its samples: members with batches of one shape compute it side by side, if their model
    has no buffers. The sums then are taken in another order: results are equal to rounding.

    Args:
      samples: of a member's batch by its number, inputs and targets.
      criterion: of the model's outputs and the targets, `[]`.

    Example:
      >>> zeros = lambda member, batch: (torch.zeros(4, 3), torch.zeros(4, 1))
      >>> loss = SampleLoss(zeros, nn.functional.mse_loss)
      >>> loss(0, nn.Linear(3, 1), 0).shape
      torch.Size([])
    """

    samples: Callable[[int, int], tuple[Tensor, Tensor]]
    criterion: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, member: int, model: nn.Module, batch: int) -> Tensor:
        """The loss of a member's batch, as `BatchLoss` has it."""
        inputs, targets = self.samples(member, batch)
        return self.criterion(model(inputs), targets)


class MemberSteps:
    """The local steps of all members, by a strategy's cadence.

    Args:
      model: whose copies they train; float32. Buffers are those of one model for all members.
      strategy: says when to exchange, and what.
      loss: of a member's batch.
      optimizer: makes the one of all members: a parameter each, which goes on from task to task.
      count: members.
    """

    def __init__(
        self, model: nn.Module, strategy: Strategy, loss: BatchLoss, optimizer: MakeOptimizer, count: int
    ) -> None:
        [self._model] = copies(model, 1)
        self._flat = Flat(self._model)
        self._cadence, self._loss = strategy.cadence, loss
        self._steps = strategy.exchange != "gradient"  # else the hub's optimizer steps alone
        self._params = [nn.Parameter(torch.empty(0)) for _ in range(count)]
        self._optimizer = optimizer(self._params)  # it passes over those that have no gradient
        self._cadences = [self._cadence.start() for _ in range(count)]
        self._batches = [0] * count
        self._layout = _layout(self._model)
        plain = next(self._model.buffers(), None) is None
        self._samples = loss if isinstance(loss, SampleLoss) and plain else None

    def run(self, jobs: Sequence[tuple[int, Tensor]]) -> list[tuple[Tensor, float]]:
        """Takes the steps of members, each once, from where they begin, `[numel]`.

        Returns: of each, the gradient if that is exchanged, else where it is then, `[numel]`; and the loss of
          its first batch.
        """
        here = torch.stack([begun for _, begun in jobs])
        begun, grads = here.clone() if self._cadence.proximal else here, torch.empty_like(here)
        found: list[tuple[Tensor, float]] = [(here[0], math.nan)] * len(jobs)
        rows, first = list(range(len(jobs))), True
        while rows:
            members = [jobs[row][0] for row in rows]
            losses = self._gradients(members, here, grads)
            if first:
                found = [(value, loss) for (value, _), loss in zip(found, losses, strict=True)]
            elif self._cadence.proximal:
                grads.add_(here - begun, alpha=self._cadence.proximal)
            first = False
            if self._steps:
                self._step(members, here, grads)
            ends = [self._ends(member) for member in members]
            for place, row in enumerate(rows):
                if ends[place]:
                    found[row] = (here if self._steps else grads)[place].clone(), found[row][1]
            if any(ends):
                stays = [place for place, end in enumerate(ends) if not end]
                rows = [rows[place] for place in stays]
                here, begun, grads = here[stays], begun[stays], grads[stays]
        return found

    def forget(self, member: int) -> None:
        """It begins anew, but for its data."""
        self._cadences[member] = self._cadence.start()
        self._optimizer.state.pop(self._params[member], None)

    def _ends(self, member: int) -> bool:
        """Counts a step of `member`. Whether its cadence wants an exchange."""
        self._batches[member] += 1
        now = float(self._batches[member])
        self._cadences[member] = self._cadence.handle(StepDone(None), self._cadences[member], now)
        decision, self._cadences[member] = self._cadence.poll(self._cadences[member], now)
        return decision.exchange

    def _step(self, members: Sequence[int], here: Tensor, grads: Tensor) -> None:
        for row, member in enumerate(members):
            param = self._params[member]
            param.data, param.grad = here[row], grads[row]
        self._optimizer.step()
        for member in members:
            self._params[member].grad = None

    def _gradients(self, members: Sequence[int], here: Tensor, grads: Tensor) -> list[float]:
        """Puts the gradients of the next batches into `grads`; all are `[members, numel]`. Returns losses."""
        if self._samples is not None and len(members) > 1:
            drawn = [self._samples.samples(member, self._batches[member]) for member in members]
            if len({(inputs.shape, targets.shape) for inputs, targets in drawn}) == 1:
                return self._side_by_side(drawn, here, grads)
        return [self._alone(member, here[row], grads[row]) for row, member in enumerate(members)]

    def _alone(self, member: int, here: Tensor, grads: Tensor) -> float:
        with torch.no_grad():
            self._flat.values.copy_(here)
        self._flat.grads.zero_()
        loss = self._loss(member, self._model, self._batches[member])
        loss.backward()  # type: ignore[no-untyped-call]
        grads.copy_(self._flat.grads)
        return float(loss.detach())

    def _side_by_side(
        self, drawn: Sequence[tuple[Tensor, Tensor]], here: Tensor, grads: Tensor
    ) -> list[float]:
        """Computes the losses of the samples that were drawn for each row, and puts gradients into
        `grads`."""
        losses: list[float] = []
        some = max(1, _AT_ONCE // here.shape[1])
        for at in range(0, len(drawn), some):
            inputs, targets = (torch.stack(one) for one in zip(*drawn[at : at + some], strict=True))
            params = self._views(here[at : at + some])
            found, values = vmap(grad_and_value(self._criterion), randomness="different")(
                params, inputs, targets
            )
            for name, view in self._views(grads[at : at + some]).items():
                view.copy_(found[name])
            losses += values.tolist()
        return losses

    def _criterion(self, params: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        assert self._samples is not None  # the caller looked
        return self._samples.criterion(functional_call(self._model, params, (inputs,)), targets)

    def _views(self, rows: Tensor) -> dict[str, Tensor]:
        """Each parameter as a view `[members, *shape]` of `rows`, `[members, numel]`."""
        count, numel = rows.shape
        return {
            name: rows.as_strided((count, *size), (numel, *stride), rows.storage_offset() + first)
            for name, size, stride, first in self._layout
        }


def _layout(model: nn.Module) -> list[tuple[str, torch.Size, tuple[int, ...], int]]:
    """Where `Flat` has put each parameter that is trained: name, shape, strides, place in the row."""
    return [
        (name, param.shape, param.stride(), int(param.storage_offset()))
        for name, param in model.named_parameters()
        if param.requires_grad
    ]
