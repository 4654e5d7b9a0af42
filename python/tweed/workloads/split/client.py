"""A client of split learning: it holds the lower layers and its data. Pure: messages in, messages out.

data = client.start(x, y)                    activations, to be sent to the server
answer = client.handle(message)              of each message of the server, until `client.is_done`
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tweed.compress import Identity
from tweed.errors import DataError, NonFinite, UsageError, remade
from tweed.exchange.checkpoint import filled, plain
from tweed.exchange.stages import Cut, CutState, Sent
from tweed.workloads.split.messages import Message, mask, part, read, whole, write

#: The mean loss over the rows of a batch, of outputs and labels: a scalar.
Loss = Callable[[Tensor, Tensor], Tensor]


def exact() -> Cut:
    """A cut at which values cross as they are."""
    return Cut(Identity(), Identity())


class SplitClient:
    """The lower layers of a model, trained with the upper ones of a server.

    Args:
      lower: any module of one input; a batch norm in it is over this client's rows alone.
      optimizer: of its parameters.
      cut: the codecs, the same as at the server; by default values cross as they are.
      loss: labels and loss stay here, and outputs come and go; None: labels are sent to the server.
      weight: of this client in the server's loss, as the size of its data; None: the rows of its batch.

    Attributes:
      is_done: the step that `start` began has ended.
      loss: of the step before, of this client.
      steps: how many have ended.

    Source: EPSL, arXiv 2303.15991; split learning: Gupta and Raskar, 2018.

    Example:
      >>> lower = nn.Linear(4, 3)
      >>> client = SplitClient(lower, torch.optim.SGD(lower.parameters(), lr=0.1))
      >>> isinstance(client.start(torch.ones(2, 4), torch.tensor([0, 1])), bytes)
      True
    """

    def __init__(
        self,
        lower: nn.Module,
        optimizer: torch.optim.Optimizer,
        cut: Cut | None = None,
        loss: Loss | None = None,
        weight: float | None = None,
    ) -> None:
        if weight is not None and not 0 < weight < float("inf"):
            raise UsageError(f"a client's weight is {weight!r}: give a number above 0, or None")
        self.lower, self.optimizer = lower, optimizer
        self.cut = exact() if cut is None else cut
        self._criterion, self._weight = loss, weight
        self._codec: CutState = self.cut.start_activations()
        self._activations: Tensor | None = None
        self._labels: Tensor | None = None
        self._sent: Sent | None = None
        self._own: Message | None = None
        self._shared: bytes | None = None
        self.is_done, self.loss, self.steps = True, float("nan"), 0

    def start(self, x: Tensor, y: Tensor) -> bytes:
        """Begins a step. A step that has not ended is forgotten: its batch may be given again.

        Args:
          x: `[b, ...]`, what the lower layers take.
          y: `[b, ...]`, labels.

        Returns: a message for the server; the same may be sent again after a link has broken.
        Raises: NonFinite for activations that are not; nothing is sent then. DataError for no rows, or labels
          of other rows.
        """
        activations: Tensor = self.lower(x)
        if not len(activations) or len(activations) != len(y):
            raise DataError(f"a batch has {len(activations)} rows of activations and {len(y)} labels")
        if not bool(activations.isfinite().all()):
            raise NonFinite(
                f"step {self.steps}: the lower layers give activations that are not finite, and nothing "
                "was sent: take a smaller learning rate, or look at this batch"
            )
        message, self._sent, self._codec = self.cut.encode(activations, self._codec)
        self._activations, self._labels, self._own, self.is_done = activations, y, None, False
        labels = y if self._criterion is None else None
        weight = float(len(y) if self._weight is None else self._weight)
        return write("rows", self.steps, activations=message, labels=labels, weight=weight)

    def handle(self, data: bytes | bytearray | memoryview) -> bytes | None:
        """A message of the server. What belongs to a step that has ended is passed over.

        Returns: an answer to be sent, if there is one.
        Raises: DataError for what is no message of this step; the server's error, if it has failed.
        """
        message = read(data, "the server")
        if message["kind"] == "failed":
            raise remade(message["error"], message["text"])
        if message["kind"] == "shared":
            self.overhear(bytes(data))
        elif self.is_done or message["step"] != self.steps:
            return None
        elif message["kind"] == "outputs":
            return self._judged(message)
        elif message["kind"] == "own":
            self._own = message
            self._go_on()
        return None

    def overhear(self, data: bytes) -> None:
        """Something that was sent to all, over a link or by multicast; it counts if its digest is right."""
        self._shared = data
        self._go_on()

    @property
    def lacks(self) -> bool:
        """Whether the gradient of aggregated rows is all that is missing; `again` asks the server for it."""
        return self._own is not None

    def again(self) -> bytes:
        """A message that asks for what was sent to all."""
        return write("again", self.steps)

    def _go_on(self) -> None:
        """Ends the step, if all of it is there."""
        own, shared = self._own, self._shared
        if own is not None and own["rows"] == 0:
            self._finish(own, None)
        elif own is not None and shared and hashlib.sha256(shared).hexdigest() == own["digest"]:
            self._finish(own, read(shared, "the server"))

    def _judged(self, message: Message) -> bytes:
        """The loss of outputs, and its gradient."""
        if self._criterion is None or self._labels is None:
            raise DataError("the server asks this client for a loss, which it has not: give it `loss=`")
        outputs = message["outputs"].requires_grad_()
        loss = self._criterion(outputs, self._labels)
        (gradient,) = torch.autograd.grad(loss, outputs)
        return write("loss", self.steps, gradient=gradient, loss=loss.item())

    def _finish(self, own: Message, shared: Message | None) -> None:
        """Back-propagates the gradient of all rows, and steps."""
        assert self._activations is not None and self._sent is not None  # the step has begun
        m, rows = own["rows"], len(self._activations)
        if not 0 <= m <= rows:
            raise DataError(f"the server has aggregated {m} of {rows} rows: do both run the same version?")
        parts = [self.cut.decode_gradient(own["gradient"], part(self._sent, m, rows))]
        if m and shared is not None:
            gradient = self.cut.decode_gradient(shared["gradient"], whole(self._sent, m))
            parts.insert(0, mask(gradient, part(self._sent, 0, m)))
        self.optimizer.zero_grad()
        self._activations.backward(torch.cat(parts))  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.loss, self.steps, self.is_done = own["loss"], self.steps + 1, True
        self._activations = self._own = self._shared = None

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint between two steps."""
        return {
            "lower": self.lower.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "codec": plain(self._codec),
            "steps": self.steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from the `state_dict` of another run."""
        self.lower.load_state_dict(state["lower"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._codec = filled(self.cut.start_activations(), state["codec"])
        self.steps, self.is_done = state["steps"], True
