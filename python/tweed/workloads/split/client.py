"""A client's side: activations up, gradients down through the lower layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tweed.errors import UsageError


class SplitClient:
    """The lower layers of one client, and the data that go through them.

    Args:
      lower: from inputs to activations.
      optimizer: of its parameters.
    """

    def __init__(self, lower: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.lower, self.optimizer = lower, optimizer
        self._sent: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Activations, `[b, ...]`, which know nothing of how they came about."""
        self._sent = self.lower(x)
        return self._sent.detach()

    def backward(self, common: Tensor, own: Tensor) -> None:
        """A step of the lower layers.

        Args:
          common: gradients of the first m activations, `[m, ...]`.
          own: of the others, `[b - m, ...]`.

        Raises: UsageError if they are not those of the last `forward`.
        """
        gradient = torch.cat([common, own])
        if self._sent is None or gradient.shape != self._sent.shape:
            shape = None if self._sent is None else list(self._sent.shape)
            raise UsageError(
                f"gradients {list(gradient.shape)} came for activations {shape}: call forward() once before "
                "each backward(), and let client and server have the same cut"
            )
        self.optimizer.zero_grad()
        sent, self._sent = self._sent, None
        sent.backward(gradient.to(sent.dtype))  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint between two steps: plain values and tensors."""
        return {"lower": self.lower.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from the `state_dict` of another run."""
        self.lower.load_state_dict(state["lower"])
        self.optimizer.load_state_dict(state["optimizer"])
