"""The server of split learning: it holds the upper layers. Pure: messages in, messages out.

server.join(client)                          a client takes part, known by a number or a name
server.handle(client, message)               what it has sent
for send in server.poll(): ...               what is to be sent now
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tweed.errors import DataError, NonFinite, ShapeMismatch, TweedError, UsageError
from tweed.exchange.checkpoint import filled, plain
from tweed.exchange.stages import Cut, CutState, Sent
from tweed.workloads.split.aggregation import CutGradients, Rows, ServerPass, aggregated_rows
from tweed.workloads.split.client import Loss, exact
from tweed.workloads.split.messages import Message, part, read, whole, write

#: What torch raises of rows or labels that do not fit.
_WRONG = (RuntimeError, IndexError, ValueError)
#: A client's rank, place or key.
Client = int | str


@dataclass(frozen=True, slots=True)
class Send:
    """A message to one client, or the same one to all of a step.

    Attributes:
      to: clients.
      data: the message.
    """

    to: tuple[Client, ...]
    data: bytes


@dataclass(slots=True)
class _Batch:
    """Rows of a client that wait for the others, and the gradient of its loss."""

    step: int
    activations: Tensor
    sent: Sent
    labels: Tensor | None
    weight: float
    gradient: Tensor | None = None
    loss: float = 0.0


class SplitServer:
    """The upper layers of a model, trained with the lower ones of several clients.

    A step is computed when the rows of all clients that take part have come. A client that leaves before
    that does not count in it; one that has sent its rows and comes back without their gradient, sends them
    again and gets that: each batch counts once.

    Args:
      upper: any module of one input, without a batch norm.
      optimizer: of its parameters.
      loss: the mean over rows, where clients send labels; None: clients have it.
      phi: the share of rows whose gradients are aggregated over clients; or a function of the step.
      cut: the codecs, the same as at clients; by default values cross as they are.
      fewest: no step is computed with fewer clients.

    Attributes:
      steps: how many have ended.
      loss: of the step before, weighted over clients.
      rows: of the step before.

    Raises: UsageError for a layer with statistics of batches, and a phi that is not from 0 to 1.
    Source: EPSL, arXiv 2303.15991; phi = 0: parallel split learning, Jeon and Kim, 2020.

    Example:
      >>> upper = nn.Linear(3, 2)
      >>> server = SplitServer(upper, torch.optim.SGD(upper.parameters(), 0.1), nn.functional.cross_entropy)
      >>> server.join("a client")
      >>> server.awaited
      ['a client']
    """

    def __init__(
        self,
        upper: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Loss | None = None,
        phi: float | Callable[[int], float] = 0.0,
        cut: Cut | None = None,
        fewest: int = 1,
    ) -> None:
        refuse_batch_norm(upper)
        self.phi = phi if callable(phi) else lambda step: phi
        aggregated_rows(self.phi(0), [1])
        self.upper, self.optimizer = upper, optimizer
        self.cut = exact() if cut is None else cut
        self._criterion, self._fewest = loss, fewest
        self._batches: dict[Client, _Batch | None] = {}
        self._codecs: dict[Client | None, CutState] = {}  # None: of what goes to all
        self._kept: dict[Client, tuple[int, list[bytes]]] = {}
        self._out: list[Send] = []
        self._pass: ServerPass | None = None
        self._counted: dict[Client, _Batch] = {}  # whose rows the pass has
        self.steps, self.loss, self.rows = 0, float("nan"), Rows(0, 0, 0, 0)

    @property
    def clients(self) -> list[Client]:
        """Clients that take part, in the order in which they came."""
        return [*self._batches]

    @property
    def awaited(self) -> list[Client]:
        """Clients from which a message is due."""
        if self._pass is None:
            return [client for client, batch in self._batches.items() if batch is None]
        return [client for client, batch in self._counted.items() if batch.gradient is None]

    def join(self, client: Client) -> None:
        """A client takes part from the next step on, or in this one if that has not all rows yet."""
        self._batches.setdefault(client, None)

    def leave(self, client: Client) -> None:
        """A client does not take part any more. A step that it has not ended goes on without it."""
        self._batches.pop(client, None)
        if client in self._counted:
            self._pass, self._counted = None, {}
        self._go_on()

    def handle(self, client: Client, data: bytes | bytearray | memoryview) -> None:
        """A message of a client.

        Raises: DataError, ShapeMismatch or NonFinite, which name the client; nothing has changed then.
        """
        message = read(data, _named(client))
        if client not in self._batches:
            raise DataError(f"{_named(client)} has sent a message, and takes no part")
        if message["kind"] == "rows":
            self._take(client, message)
        elif message["kind"] == "loss":
            self._judge(client, message)
        elif message["kind"] == "again":
            step, kept = self._kept.get(client, (-1, []))
            self._out += [Send((client,), data) for data in kept[:-1] if step == message["step"]]
        else:
            raise DataError(f"{_named(client)} has sent {message['kind']!r}, which is the server's to say")
        self._go_on()

    def poll(self) -> Sequence[Send]:
        """What is to be sent now, in this order."""
        out, self._out = self._out, []
        return out

    def _take(self, client: Client, message: Message) -> None:
        step, kept = self._kept.get(client, (-1, []))
        if message["step"] == step:
            self._out += [Send((client,), data) for data in kept]
            return
        try:
            activations, sent = self.cut.decode(message["activations"])
        except DataError as error:
            raise DataError(f"{_named(client)}: {error}") from error
        labels, weight = message["labels"], message["weight"]
        if not activations.dim() or not len(activations) or not 0 < weight < float("inf"):
            raise DataError(f"{_named(client)} has sent no rows, or the weight {weight}")
        if not bool(activations.isfinite().all()):
            raise NonFinite(f"step {self.steps}: activations of {_named(client)} are not finite")
        if (labels is None) != (self._criterion is None) or (
            labels is not None and len(labels) != sent.shape[0]
        ):
            where = "clients" if self._criterion is None else "the server"
            raise DataError(f"the loss is at {where}, and {_named(client)} has sent other labels")
        for other, batch in self._batches.items():
            if batch and batch.sent.shape[1:] != sent.shape[1:]:
                raise ShapeMismatch(
                    f"clients cut the model at different layers: {_named(client)} sends rows of "
                    f"{list(sent.shape[1:])}, {_named(other)} of {list(batch.sent.shape[1:])}"
                )
        self._batches[client] = _Batch(message["step"], activations, sent, labels, weight)

    def _judge(self, client: Client, message: Message) -> None:
        batch, step = self._counted.get(client), self._pass
        if batch is None or step is None or message["step"] != batch.step:
            return  # of outputs that are computed anew, as another client has left
        gradient, outputs = message["gradient"], step.outputs[[*self._counted].index(client)]
        if gradient.shape != outputs.shape:
            raise ShapeMismatch(
                f"{_named(client)} has sent a gradient of {list(gradient.shape)} for outputs of "
                f"{list(outputs.shape)}"
            )
        if not bool(gradient.isfinite().all()):
            raise NonFinite(f"step {self.steps}: the loss of {_named(client)} has no finite gradient")
        batch.gradient, batch.loss = gradient, message["loss"]

    def _go_on(self) -> None:
        """Computes as far as what has come allows."""
        while len(self._batches) >= self._fewest and self._batches and not self.awaited:
            if self._pass is None:
                self._forward()
            else:
                self._update(self._pass)

    def _forward(self) -> None:
        """Outputs of all rows; their gradients are computed here or asked for.

        A client whose rows or labels cannot be computed with is told so and takes no part any more.
        """
        refuse_batch_norm(self.upper)
        self._counted = {client: batch for client, batch in self._batches.items() if batch}
        batches = [*self._counted.values()]
        m = aggregated_rows(self.phi(self.steps), [len(batch.activations) for batch in batches])
        activations = [batch.activations for batch in batches]
        try:
            self._pass = ServerPass(self.upper, activations, self._weights(), m)
        except _WRONG:
            self._expel_misfits()
            return
        for (client, batch), outputs in zip(self._counted.items(), self._pass.outputs, strict=True):
            batch.gradient = None
            if self._criterion is None or batch.labels is None:
                self._out.append(Send((client,), write("outputs", batch.step, outputs=outputs)))
            elif error := _judged(self._criterion, batch, outputs):
                self._expel(client, error)
                return

    def _expel_misfits(self) -> None:
        """Clients leave whose rows the upper layers do not take. Raises their error if they take all."""
        misfits: dict[Client, Exception] = {}
        for client, batch in self._counted.items():
            try:
                with torch.no_grad():
                    self.upper(batch.activations)
            except _WRONG as error:
                misfits[client] = error
        if not misfits:
            raise UsageError("the upper layers take the rows of each client, and not those of all together")
        for client, wrong in misfits.items():
            rows = list(self._counted[client].activations.shape)
            self._expel(client, ShapeMismatch(f"rows of {rows} do not fit the upper layers: {wrong}"))

    def _expel(self, client: Client, error: TweedError) -> None:
        """A client is told why it takes no part any more; the step begins anew with the others."""
        self._out.append(
            Send((client,), write("failed", 0, error=type(error).__name__, text=f"{_named(client)}: {error}"))
        )
        self._batches.pop(client, None)
        self._pass, self._counted = None, {}

    def _weights(self) -> list[float]:
        total = sum(batch.weight for batch in self._counted.values())
        return [batch.weight / total for batch in self._counted.values()]

    def _update(self, step: ServerPass) -> None:
        """Back-propagates, steps, and replies."""
        batches = self._counted.values()
        self.optimizer.zero_grad()
        gradients = step.backward([batch.gradient for batch in batches if batch.gradient is not None])
        self.optimizer.step()
        pairs = zip(self._weights(), batches, strict=True)
        self.loss, self.rows = sum(weight * batch.loss for weight, batch in pairs), step.rows
        self._reply(gradients)
        self._batches |= dict.fromkeys(self._counted)
        self._pass, self._counted, self.steps = None, {}, self.steps + 1

    def _reply(self, gradients: CutGradients) -> None:
        m, batches, shared = self.rows.broadcast, self._counted, []
        if m:
            sent = whole(next(iter(batches.values())).sent, m)
            shared = [write("shared", self.steps, gradient=self._encoded(None, gradients.broadcast, sent))]
            self._out.append(Send((*batches,), shared[0]))
        for (client, batch), gradient in zip(batches.items(), gradients.unicast, strict=True):
            encoded = self._encoded(client, gradient, part(batch.sent, m, len(batch.activations)))
            digest = hashlib.sha256(shared[0]).hexdigest() if shared else ""
            fields = {"gradient": encoded, "rows": m, "digest": digest, "loss": batch.loss}
            own = write("own", batch.step, **fields)
            self._kept[client] = batch.step, [*shared, own]
            self._out.append(Send((client,), own))

    def _encoded(self, client: Client | None, gradient: Tensor, sent: Sent) -> Tensor:
        """A gradient as a message, by the codec of a client; None: of all."""
        state = self._codecs.get(client) or self.cut.start_gradients()
        message, self._codecs[client] = self.cut.encode_gradient(gradient, sent, state)
        return message

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint between two steps."""
        return {
            "upper": self.upper.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "codecs": {client: plain(state) for client, state in self._codecs.items()},
            "kept": {
                client: (step, [torch.frombuffer(bytearray(one), dtype=torch.uint8) for one in replies])
                for client, (step, replies) in self._kept.items()
            },
            "steps": self.steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from the `state_dict` of another run; clients join again."""
        self.upper.load_state_dict(state["upper"])
        self.optimizer.load_state_dict(state["optimizer"])
        start = self.cut.start_gradients
        self._batches = dict.fromkeys(self._batches)
        self._pass, self._counted = None, {}
        self._codecs = {client: filled(start(), kept) for client, kept in state["codecs"].items()}
        self._kept = {
            client: (step, [bytes(reply.numpy()) for reply in replies])
            for client, (step, replies) in state["kept"].items()
        }
        self.steps = state["steps"]


def _judged(criterion: Loss, batch: _Batch, outputs: Tensor) -> TweedError | None:
    """Gives a batch its loss and the gradient of that. Returns why there is none."""
    try:
        loss = criterion(outputs.requires_grad_(), batch.labels)  # type: ignore[arg-type]
        (batch.gradient,) = torch.autograd.grad(loss, outputs)
    except _WRONG as error:
        return DataError(f"its labels give no loss: {error}")
    batch.loss = loss.item()
    if not bool(batch.gradient.isfinite().all()):
        return NonFinite("its loss has no finite gradient")
    return None


def _named(client: Client) -> str:
    return f"client {client}"


def refuse_batch_norm(upper: nn.Module) -> None:
    """Raises UsageError for upper layers of which one has statistics of batches."""
    for name, layer in upper.named_modules():
        keeps = isinstance(layer, nn.modules.batchnorm._NormBase) and layer.training
        if keeps and (isinstance(layer, nn.modules.batchnorm._BatchNorm) or layer.track_running_stats):
            raise UsageError(
                f"upper layers do not go with layer {name!r}, {type(layer).__name__}: its statistics would "
                "be of rows of several clients and of their averages. Take GroupNorm or LayerNorm, or give "
                "it fixed statistics by eval()"
            )
