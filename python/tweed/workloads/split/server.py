"""The server's side: one step of the upper layers with the activations of all clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tweed.errors import DataError, UsageError
from tweed.workloads.split.rows import given_back, reduced, reduced_rows, slots

Loss = Callable[[Tensor, Tensor], Tensor]
#: Layers that keep something over a batch, or draw for it: rows of an aggregate are no samples to them.
_OVER_BATCH = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)


class Replies(NamedTuple):
    """What a step gives back.

    Attributes:
      common: gradients of the first m activations, the same for all clients, `[m, ...]`.
      own: of each client's others, `[b - m, ...]`.
      loss: the weighted mean of the clients' losses.
      rows: that were back-propagated.
    """

    common: Tensor
    own: list[Tensor]
    loss: float
    rows: int


class SplitServer:
    """The upper layers, one model for all clients.

    Args:
      upper: from activations to outputs.
      optimizer: of its parameters.
      phi: the share of each batch whose gradients are aggregated over clients, from 0, parallel split
        learning, to 1; or what gives it by the step's number.
      loss: a mean over a batch, of outputs and labels.

    Attributes:
      steps: that were taken.

    Raises: UsageError for layers that keep something over the batch, where rows may be aggregated.
    Source: Lin et al. 2024, algorithm 1.
    """

    def __init__(
        self,
        upper: nn.Module,
        optimizer: torch.optim.Optimizer,
        phi: float | Callable[[int], float] = 0.0,
        loss: Loss = nn.functional.cross_entropy,
    ) -> None:
        over = [name for name, module in upper.named_modules() if isinstance(module, _OVER_BATCH)]
        if over and phi != 0:
            raise UsageError(
                f"layer {over[0]!r} of the upper model keeps or draws something over the batch, and "
                "aggregated rows are no samples: take phi=0, or layers such as LayerNorm"
            )
        self.upper, self.optimizer, self.loss = upper, optimizer, loss
        self.phi = phi if callable(phi) else lambda step: phi
        self.steps = 0

    def outputs(self, activations: Sequence[Tensor]) -> list[Tensor]:
        """Outputs for each client's activations: for clients that keep their labels."""
        with torch.no_grad():
            found: Tensor = self.upper(torch.cat(list(activations)))
        return list(torch.split(found, [len(one) for one in activations]))

    def step(
        self, activations: Sequence[Tensor], labels: Sequence[Tensor], weights: Sequence[float] | None = None
    ) -> Replies:
        """A step of the upper layers.

        Args:
          activations: of each client, `[b, ...]`, alike but for b.
          labels: of each client, `[b]`; a client that keeps them gives the gradients of its loss by the
            outputs, in their shape.
          weights: of clients, such as their shares of all samples; None: equal.

        Returns: gradients of each client's own loss by its activations.
        Raises: UsageError for clients with other shapes; DataError for values that are not finite. Both name
          the client, and nothing has changed.
        """
        count = len(activations)
        shares = _shares(weights, count)
        _check(activations, labels)
        rows = [len(one) for one in activations]
        m = slots(self.phi(self.steps), rows)
        # Below m, the layers' Jacobians are those at the mean of activations.
        inner = reduced(activations, shares, m).requires_grad_()
        outer = self.upper(inner)
        outputs = list(torch.split(outer, rows)) if m == 0 else self.outputs(activations)
        losses, errors = zip(*map(self._error, outputs, labels), strict=True)
        weighted = [share * error for share, error in zip(shares, errors, strict=True)]
        pulled = reduced(weighted, [1.0] * count, m)
        self.optimizer.zero_grad()
        outer.backward(pulled)
        self.optimizer.step()
        self.steps += 1
        assert inner.grad is not None  # the pass has just been there
        common, own = given_back(inner.grad, rows, m)
        own = [one / share for one, share in zip(own, shares, strict=True)]
        loss = sum(share * loss for share, loss in zip(shares, losses, strict=True))
        return Replies(common, own, float(loss), reduced_rows(rows, m))

    def _error(self, outputs: Tensor, labels: Tensor) -> tuple[float, Tensor]:
        """A client's loss, and its gradient by the outputs; what is that already has no loss here."""
        if labels.shape == outputs.shape and labels.is_floating_point():
            return float("nan"), labels
        outputs = outputs.detach().requires_grad_()
        loss = self.loss(outputs, labels)
        (error,) = torch.autograd.grad(loss, outputs)
        return loss.item(), error

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint between two steps: plain values and tensors."""
        return {
            "upper": self.upper.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "steps": self.steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from the `state_dict` of another run."""
        self.upper.load_state_dict(state["upper"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.steps = state["steps"]


def _shares(weights: Sequence[float] | None, count: int) -> list[float]:
    given = [1.0] * count if weights is None else list(weights)
    if len(given) != count or not count or min(given) <= 0:
        raise UsageError(f"weights {given} are not those of {count} clients: give one above 0 for each")
    return [weight / sum(given) for weight in given]


def _check(activations: Sequence[Tensor], labels: Sequence[Tensor]) -> None:
    """Raises UsageError or DataError, with the client's number, for what cannot go on."""
    usual = activations[0].shape[1:]
    for client, (one, other) in enumerate(zip(activations, labels, strict=True)):
        if one.shape[1:] != usual or len(one) != len(other) or not len(one):
            raise UsageError(
                f"client {client} sends activations {list(one.shape)} with {len(other)} labels, and client 0 "
                f"rows of {list(usual)}: give all clients the same cut, and a label for each row"
            )
        if not bool(one.isfinite().all()):
            raise DataError(
                f"client {client} sends activations that are not finite, and nothing has changed: check its "
                "batch, or lower its learning rate"
            )
