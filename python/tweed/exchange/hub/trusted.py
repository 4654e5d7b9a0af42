"""What a hub finds out with samples that it trusts, when its rule asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tweed.aggregate import InnerProducts, Losses, Question
from tweed.errors import UsageError
from tweed.strategy import Strategy

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


class Trusted:
    """Answers questions at a model, whose parameters it leaves as they were. Each is about another batch.

    Args:
      params: the model's, those that are trained.
      loss: None: there are no trusted samples.

    Attributes:
      questions: that were asked so far: the number of the last batch.
    """

    def __init__(self, params: Sequence[Tensor], loss: TrustedLoss | None) -> None:
        self._params, self.loss, self.questions = params, loss, 0

    def answer(self, question: Question) -> Tensor:
        """What comes of `question`."""
        if isinstance(question, InnerProducts):
            return question.of_range()
        assert self.loss is not None  # the caller looked, by `require`
        self.questions += 1
        if isinstance(question, Losses):
            return self._losses(question, self.loss)
        return self._gradient(self.loss)

    @torch.no_grad()
    def _losses(self, question: Losses, loss: TrustedLoss) -> Tensor:
        kept = [param.detach().clone() for param in self._params]
        found = [float(loss(self.questions))]
        try:
            for direction in question.directions:
                pieces = torch.split(direction.flatten(), [param.numel() for param in self._params])
                for param, value, piece in zip(self._params, kept, pieces, strict=True):
                    step = piece.view(param.shape).to(param)
                    torch.sub(value, step, alpha=question.scale, out=param.detach())
                found.append(float(loss(self.questions)))
        finally:
            for param, value in zip(self._params, kept, strict=True):
                param.copy_(value)
        return torch.tensor(found, dtype=torch.float64)

    def _gradient(self, loss: TrustedLoss) -> Tensor:
        with torch.enable_grad():
            grads = torch.autograd.grad(
                loss(self.questions), list(self._params), allow_unused=True, materialize_grads=True
            )
        return torch.cat([grad.detach().float().cpu().flatten() for grad in grads])
