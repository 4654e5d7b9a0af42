"""The closure of a member's optimizer: the loss and its gradient, as means over all samples of the step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from tweed.elastic.training.evaluations import MemberEvaluations
from tweed.elastic.training.gradients import MemberGradients
from tweed.elastic.training.loader import Loader
from tweed.elastic.training.movement import MemberMovement
from tweed.elastic.training.rounds import MemberRounds
from tweed.errors import UsageError


class Closure:
    """See `ElasticTraining.closure`, and `member_evaluations`.

    Args:
      params: of the model, by name.
      gradients: of this member, or movements of its model under local steps.
      loss: of a batch, a scalar.

    Attributes:
      loader: of batches; None before the first.
    """

    def __init__(
        self,
        params: Mapping[str, Tensor],
        gradients: MemberGradients | MemberMovement,
        loss: Callable[[Any], Tensor],
    ) -> None:
        self._params, self._gradients, self._loss = params, gradients, loss
        self.loader: Loader | None = None
        self._mean = gradients.like.new_zeros(())
        if isinstance(gradients, MemberGradients):
            gradients.add(self._mean)

    def evaluate(self) -> Tensor:
        """The mean loss, and gradients that are means. Raises: UsageError without a batch."""
        steps, loader = self._gradients.steps, self.loader
        if loader is None or not isinstance(steps, MemberEvaluations | MemberRounds):
            raise UsageError("a closure of run.closure() was called without a batch: loop over run.batches()")
        forget(self._params, self._params)
        for samples in steps.evaluation():
            forget(self._params, self._params)
            self._mean.zero_()
            self._gradients.drawn()
            with torch.enable_grad():
                value = self._loss(loader.keep(samples))
                self._mean.copy_(value.detach())
                value.backward()  # type: ignore[no-untyped-call]
        forget(self._params, self._gradients.unused)
        return self._mean.clone()


def forget(params: Mapping[str, Tensor], names: Iterable[str]) -> None:
    """These have no gradient, so that optimizers pass over them."""
    for name in names:
        params[name].grad = None
