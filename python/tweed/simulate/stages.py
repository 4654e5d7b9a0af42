"""Two stages of one model in one process: the code that runs live, with a queue for a wire."""

from __future__ import annotations

from collections import deque

from torch import Tensor

from tweed.exchange.stage_link import StageLink
from tweed.exchange.stages import Cut


def stage_links(cut: Cut) -> tuple[StageLink, StageLink]:
    """Both ends of a cut. What one end waits for, the other must have sent before: the second stage runs its
    backward pass before the first.

    Example:
      >>> import torch
      >>> first, second = stage_links(Cut())
      >>> x = torch.arange(40.0, requires_grad=True)
      >>> zero = first.send(x)
      >>> second.receive().sum().backward()
      >>> zero.backward()
      >>> x.grad.nonzero().flatten().tolist()
      [38, 39]
    """
    forwards: deque[Tensor] = deque()
    backwards: deque[Tensor] = deque()
    return StageLink(_Queue(backwards, forwards), cut), StageLink(_Queue(forwards, backwards), cut)


class _Queue:
    """Messages from one deque, and to another."""

    def __init__(self, incoming: deque[Tensor], outgoing: deque[Tensor]) -> None:
        self._incoming, self._outgoing = incoming, outgoing

    def send(self, message: Tensor) -> None:
        self._outgoing.append(message)

    def receive(self) -> Tensor:
        """Takes the next message from the queue."""
        return self._incoming.popleft()
