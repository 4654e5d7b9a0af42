"""The ends of a cut in torch's backward pass: activations are sent forwards, their gradients backwards.

loss = link.send(first(x))       first stage    a scalar zero, whose backward pass waits for the gradient
y = link.receive()               second stage   activations, whose backward pass sends the gradient
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from tweed.exchange.checkpoint import filled, plain
from tweed.exchange.stages import Cut, Sent


class Wire(Protocol):
    """Messages to the other stage and from it, in order, whole."""

    def send(self, message: Tensor) -> None:
        """`[bytes]` uint8; it stays as it is."""

    def receive(self) -> Tensor:
        """The next one, `[bytes]` uint8."""
        ...


class StageLink:
    """One stage's end of a cut.

    Batches may be under way one after another: gradients come back in the order in which backward passes of
    the second stage run, and those of the first must run in the same order.

    Args:
      wire: to the other stage.
      cut: as there.

    Attributes:
      bytes_sent, bytes_received: of messages.
      values_sent: activations or gradients that this end has sent.
    """

    def __init__(self, wire: Wire, cut: Cut) -> None:
        self._wire, self._cut = wire, cut
        self._activations, self._gradients = cut.start_activations(), cut.start_gradients()
        self.bytes_sent = self.bytes_received = self.values_sent = 0

    def send(self, x: Tensor) -> Tensor:
        """Sends activations to the next stage.

        Args:
          x: as for `Cut.encode`.

        Returns: a scalar, zero. Its `backward()` waits for the gradient and goes on with it through what made
          `x`; where `x` needs no gradient, none is waited for.
        Raises: DataError as `Cut.encode`; what the wire raises.
        """
        wants = torch.is_grad_enabled() and x.requires_grad
        out: Tensor = _Send.apply(x, self, wants)
        return out

    def receive(self) -> Tensor:
        """Activations from the stage before. Their backward pass sends the gradient, if that stage waits for
        one.

        Raises: DataError for a message that is none; what the wire raises.
        """
        values, sent = self._cut.decode(self._take())
        if not sent.wants_gradient:
            return values
        anchor = torch.zeros((), device=values.device, requires_grad=True)
        out: Tensor = _Receive.apply(anchor, values, sent, self)
        return out

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint between two steps: plain values and tensors."""
        return {"activations": plain(self._activations), "gradients": plain(self._gradients)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from the `state_dict` of another run."""
        self._activations = filled(self._cut.start_activations(), state["activations"])
        self._gradients = filled(self._cut.start_gradients(), state["gradients"])

    def _send_activations(self, x: Tensor, wants_gradient: bool) -> Sent:
        message, sent, self._activations = self._cut.encode(x, self._activations, wants_gradient)
        self._give(message, sent)
        return sent

    def _send_gradient(self, gradient: Tensor, sent: Sent) -> None:
        message, self._gradients = self._cut.encode_gradient(gradient, sent, self._gradients)
        self._give(message, sent)

    def _receive_gradient(self, sent: Sent) -> Tensor:
        return self._cut.decode_gradient(self._take(), sent)

    def _give(self, message: Tensor, sent: Sent) -> None:
        self.bytes_sent += len(message)
        self.values_sent += sent.count
        self._wire.send(message)

    def _take(self) -> Tensor:
        message = self._wire.receive()
        self.bytes_received += len(message)
        return message


class _Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, link: StageLink, wants_gradient: bool) -> Tensor:
        ctx.link, ctx.sent = link, link._send_activations(x, wants_gradient)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *zero: Tensor) -> tuple[Tensor, None, None]:
        return ctx.link._receive_gradient(ctx.sent), None, None


class _Receive(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, values: Tensor, sent: Sent, link: StageLink) -> Tensor:
        ctx.link, ctx.sent = link, sent
        return values

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor, None, None, None]:
        ctx.link._send_gradient(gradient[0], ctx.sent)
        return gradient[0].new_zeros(()), None, None, None
