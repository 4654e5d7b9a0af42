"""What a hub finds out with samples that it trusts, when its rule asks."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from tweed.aggregate import InnerProducts, Losses, Question, TrustedSteps, Zeno, ZenoPlusPlus
from tweed.errors import UsageError
from tweed.strategy import Strategy

log = logging.getLogger("tweed")
#: The loss of the hub's model on a batch of trusted samples, by the batch's number: on the same samples
#: whenever it is called with the same number.
TrustedLoss = Callable[[int], Tensor]


def require(strategy: Strategy, loss: object) -> None:
    """Raises UsageError if the strategy's aggregate judges by trusted samples, and there are none."""
    if strategy.trusts_samples and loss is None:
        raise UsageError(
            f"aggregate={strategy.aggregate!r} judges by trusted samples: say what the model's loss on them "
            "is, run.serve(trusted=...)"
        )


def batches(question: Question) -> int:
    """How many batches of trusted samples the answer takes."""
    if isinstance(question, InnerProducts):
        return 0
    return question.steps * question.validators if isinstance(question, TrustedSteps) else 1


def warn_of_rate(strategy: Strategy, optimizer: Optimizer) -> None:
    """Logs a warning if the rule judges contributions by another learning rate than that of the hub's SGD: by
    other steps than the model takes. Steps of other optimizers have norms of their own."""
    rule = strategy.rule
    if not (isinstance(rule, Zeno | ZenoPlusPlus) and isinstance(optimizer, SGD)):
        return
    others = [group["lr"] for group in optimizer.param_groups if not math.isclose(group["lr"], rule.lr)]
    if others:
        log.warning(
            "aggregate=%r judges contributions by steps with lr=%g, and the hub's optimizer has lr=%g: give "
            "the rule the optimizer's, %s(lr=%g)",
            *(rule, rule.lr, others[0], type(rule).__name__, others[0]),
        )


class Trusted:
    """Answers questions at a model, whose parameters it leaves as they were. Each is about another batch; for
    steps of n validators, batch k is validator `(k - 1) % n`'s.

    Args:
      params: the model's, those that are trained.
      loss: None: there are no trusted samples.

    Attributes:
      questions: number of the last batch.
    """

    def __init__(self, params: Collection[Tensor], loss: TrustedLoss | None) -> None:
        self._params, self.loss, self.questions = params, loss, 0

    def answer(self, question: Question) -> Tensor | list[Tensor]:
        """What comes of `question`."""
        if isinstance(question, InnerProducts):
            return question.of_range()
        assert self.loss is not None  # the caller looked, by `require`
        if isinstance(question, TrustedSteps):
            return self._steps(question, self.loss)
        self.questions += 1
        if isinstance(question, Losses):
            return self._losses(question, self.loss)
        return self._gradient(self.loss)

    @torch.no_grad()
    def _losses(self, question: Losses, loss: TrustedLoss) -> Tensor:
        kept = self._copies()
        found = [float(loss(self.questions))]
        try:
            for direction in question.directions:
                pieces = torch.split(direction.flatten(), [param.numel() for param in self._params])
                for param, value, piece in zip(self._params, kept, pieces, strict=True):
                    step = piece.view(param.shape).to(param)
                    torch.sub(value, step, alpha=question.scale, out=param.detach())
                found.append(float(loss(self.questions)))
        finally:
            self._put_back(kept)
        return torch.tensor(found, dtype=torch.float64)

    def _gradient(self, loss: TrustedLoss) -> Tensor:
        with torch.enable_grad():
            grads = self._gradients(loss(self.questions))
        return torch.cat([_on_host(grad) for grad in grads])

    def _gradients(self, loss: Tensor) -> Sequence[Tensor]:
        return torch.autograd.grad(loss, list(self._params), allow_unused=True, materialize_grads=True)

    @torch.no_grad()
    def _steps(self, question: TrustedSteps, loss: TrustedLoss) -> list[Tensor]:
        """For each tensor, how far each validator came: `[validators, numel]`."""
        kept, first = self._copies(), self.questions
        moved: list[list[Tensor]] = [[] for _ in kept]
        try:
            for validator in range(question.validators):
                for step in range(question.steps):
                    self.questions = first + step * question.validators + validator + 1
                    with torch.enable_grad():
                        grads = self._gradients(loss(self.questions))
                    for param, grad in zip(self._params, grads, strict=True):
                        param.sub_(grad, alpha=question.lr)
                for rows, start, param in zip(moved, kept, self._params, strict=True):
                    rows.append(_on_host(start - param))
                self._put_back(kept)
        finally:
            self._put_back(kept)
            self.questions = first + question.steps * question.validators
        return [torch.stack(rows) for rows in moved]

    def _copies(self) -> list[Tensor]:
        return [param.detach().clone() for param in self._params]

    @torch.no_grad()
    def _put_back(self, values: Sequence[Tensor]) -> None:
        for param, value in zip(self._params, values, strict=True):
            param.copy_(value)


def _on_host(value: Tensor) -> Tensor:
    """As contributions are: float32, side by side."""
    return value.detach().float().cpu().flatten()
