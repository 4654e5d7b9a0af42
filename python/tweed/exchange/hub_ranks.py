"""A hub and its workers as ranks of one process group: the live side of `hub`, over single messages.

A message is a head of six numbers: what it is, the task, and four that depend on the kind. Behind the head of
a task comes the model, as one message more; behind that of a payload, the payload. A link of a group does not
come back: if a rank is lost, all others raise PeerLost.

    worker, each exchange                           hub, in `serve`
    offer, payload if granted          ->           commit: the optimizer steps
    the newest model is its own        <-           next task
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor

from tweed.collective.hub import Hub as HubRank
from tweed.compress import Spec
from tweed.errors import DataError
from tweed.exchange.cadence_driver import CadenceDriver
from tweed.exchange.communicator import Communicator
from tweed.exchange.hub import Grant, Hub, Offer, Outcome, Payload, Ready, Step, Task, Worker
from tweed.exchange.hub.form import ContributionForm, ModelForm
from tweed.exchange.hub.hub import Abandon, Action, Ask
from tweed.exchange.hub.messages import FromHub, FromWorker, Leave, Why
from tweed.exchange.hub.trusted import Trusted, TrustedLoss, require
from tweed.exchange.hub.worker import Compute
from tweed.exchange.p2p import PeerMessages
from tweed.strategy import Strategy

log = logging.getLogger("tweed")
_WHY = list(Why)
_HEAD = 6


class _Kind(IntEnum):
    """What a message is."""

    READY = 0
    OFFER = 1
    PAYLOAD = 2
    LEAVE = 3
    TASK = 4
    GRANT = 5
    OUTCOME = 6


class Parameters:
    """The parameters that are trained, as one vector of float32."""

    def __init__(self, params: Sequence[Tensor]) -> None:
        self.params = params
        self.spec = Spec(tuple(tuple(param.shape) for param in params))

    @torch.no_grad()
    def values(self) -> Tensor:
        """A copy: `[numel]`."""
        return torch.cat([param.detach().float().cpu().flatten() for param in self.params])

    def gradients(self) -> Tensor:
        """A copy: `[numel]`, zero where a parameter has none."""
        grads = [torch.zeros_like(p) if p.grad is None else p.grad.detach() for p in self.params]
        return torch.cat([grad.float().cpu().flatten() for grad in grads])

    @torch.no_grad()
    def set(self, values: Tensor) -> None:
        """The model has these values now."""
        for param, piece in zip(self.params, self.pieces(values), strict=True):
            param.copy_(piece)

    def pieces(self, values: Tensor) -> list[Tensor]:
        """Views of such a vector, one in the shape of each parameter."""
        split = torch.split(values, list(self.spec.sizes))
        return [piece.view(param.shape) for param, piece in zip(self.params, split, strict=True)]

    def set_gradients(self, values: Tensor) -> None:
        """Gradients are these, for an optimizer to step by."""
        for param, piece in zip(self.params, self.pieces(values), strict=True):
            param.grad = piece.to(param)


class HubWorker:
    """A worker's side: an `Exchange` after steps. Each one waits for the grant, and for the newest model.

    Args:
      params: those that are trained.
      comm: a group with a hub.
      cadence: when to exchange.
      strategy: what is exchanged, and how it is compressed.
    """

    def __init__(
        self, params: Mapping[str, Tensor], comm: Communicator, cadence: CadenceDriver, strategy: Strategy
    ) -> None:
        assert isinstance(strategy.collective, HubRank)  # that is when it is chosen
        self.paused = False
        self._comm, self._cadence, self._hub = comm, cadence, strategy.collective.rank
        self._params = Parameters(list(params.values()))
        self._messages = PeerMessages(comm.group, comm.wait)
        self._head = torch.empty(_HEAD, dtype=torch.float64)
        self._newest = torch.empty(self._params.spec.numel)
        self._begun = torch.empty(self._params.spec.numel)
        whose = (self._params.spec, comm.owners.contributor, comm.owners.contributors)
        self._form = ContributionForm(strategy, *whose, os.urandom)
        self._models = ModelForm(strategy.collective.model, self._params.spec, comm.owners.contributors)
        self._exchanges = strategy.exchange
        self._gradient: Tensor | None = None
        self._loss = math.nan
        self._machine = Worker()
        self._left = False

    def before_step(self) -> None:
        """Keeps the gradient, where that is sent: what the step makes of it is thrown away."""
        if self._machine.task is None and not self._begin():
            self._gradient = None
        elif self._exchanges == "gradient":
            self._gradient = self._params.gradients()

    def check_finite(self) -> None:
        """Nothing: the hub's rule judges what is sent."""

    def after_step(self, norm: float | None) -> None:
        """Hands over what the cadence wants exchanged, and takes the newest model."""
        if self._cadence.decide():
            self._exchange()

    def finish(self) -> None:
        """Hands over what steps there were since the last exchange; the cadence knows of the stop. What was
        not sent is forgotten."""
        if self._exchanges != "gradient" and self._machine.task is not None and self._cadence.decide():
            self._exchange()
        if self._form.is_ahead:
            self._form.forget()
            self._take()

    def average(self, tensors: list[Tensor]) -> list[Tensor]:
        """See `Exchange`: this rank's own, without what its model is ahead of the hub's by."""
        if self._machine.task is None:
            return tensors
        values = self._params.values() - self._begun + self._newest
        count = len(self._params.params)
        return [*self._params.pieces(values), *tensors[count:]] if self._form.is_ahead else tensors

    def state(self) -> dict[str, Any]:
        """See `Exchange`."""
        return {"last": self._machine.last, "form": self._form.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """See `Exchange`."""
        self._machine.last = state["last"]
        self._form.load(state["form"])

    def close(self) -> None:
        """Tells the hub that nothing more will come, if it is still there to hear it."""
        if not self._left:
            self._left = True
            with suppress(RuntimeError):  # a failure has been raised before, where it mattered
                self._send(Leave())
                self._messages.flush()

    def _begin(self) -> bool:
        """Before the first step: asks for a task. Whether the hub's model is the one that this rank has.

        If not, it is taken, and a gradient that was computed before is of no use.
        """
        self._machine.linked()
        self._until_task()
        same = torch.equal(self._newest, self._params.values())
        self._take()
        return same

    def report_loss(self, loss: float) -> None:
        """The first one of a round goes to the hub: it is that of the model that came."""
        if math.isnan(self._loss):
            self._loss = loss

    @property
    def noisy(self) -> int:
        """Contributions that had noise, so far."""
        return self._form.noisy

    def _take(self) -> None:
        """Begins with the model that came, as the parameters' type holds it: what they move by counts from
        there."""
        self._params.set(self._form.begin(self._newest))
        self._begun = self._params.values()

    def _exchange(self) -> None:
        if (value := self._value()) is not None:
            self._hand_over(value)
        self._loss = math.nan
        self._take()
        self._comm.end_exchange()

    def _value(self) -> Tensor | None:
        gradient, self._gradient = self._gradient, None
        if self._exchanges == "gradient":
            return gradient
        return self._form.value(self._begun, self._params.values())

    def _hand_over(self, value: Tensor) -> None:
        task = self._machine.task
        assert task is not None  # the last exchange ended with one
        offer, data = self._form.offer(value, task.number, loss=self._loss)
        self._comm.stats.bytes_packed += data.numel()
        self._machine.computed(offer, data)
        self._until_task()
        self._form.over(self._machine.counted)

    def _until_task(self) -> None:
        """Does what the machine wants until there is something to compute."""
        while True:
            action = self._machine.poll()
            if isinstance(action, Compute):
                self._messages.flush()
                return
            if action is not None:
                self._send(action)
            else:
                self._machine.handle(self._receive())

    def _send(self, message: FromWorker) -> None:
        self._messages.send(_packed(message), self._hub)
        if isinstance(message, Payload):
            self._messages.send(message.value, self._hub)

    def _receive(self) -> FromHub:
        self._await(self._head)
        kind, number, other = (int(value) for value in self._head[:3].tolist())
        if kind == _Kind.TASK:
            numbytes = self._head[3].item()
            if not 0 <= numbytes <= self._models.most_bytes:
                raise DataError(f"the hub announces a model of {numbytes} bytes, which cannot be")
            data = torch.empty(int(numbytes), dtype=torch.uint8)
            self._await(data)
            self._newest = self._models.decode(data, other)
            return Task(number, other)
        return Grant(number) if kind == _Kind.GRANT else Outcome(number, _WHY[other])

    def _await(self, tensor: Tensor) -> None:
        self._messages.expect("it", tensor, self._hub)
        self._messages.next(math.inf)


class HubServer:
    """The hub's side: an `Exchange` that does nothing by itself, and `serve`.

    Args: as of `HubWorker`.

    Attributes:
      hub: the machine.
      verdicts: on the contributions of the last commit.
    """

    def __init__(
        self, params: Mapping[str, Tensor], comm: Communicator, cadence: CadenceDriver, strategy: Strategy
    ) -> None:
        given = strategy.collective
        assert isinstance(given, HubRank)  # that is when it is chosen
        self.paused = False
        self._comm = comm
        self._params = Parameters(list(params.values()))
        self._workers = [rank for rank in range(comm.size) if rank != given.rank]
        self._strategy, count = strategy, len(self._workers)
        self._forms = {
            rank: ContributionForm(strategy, self._params.spec, place, count)
            for place, rank in enumerate(self._workers)
        }
        self._models = ModelForm(given.model, self._params.spec, count)
        self._trusted = Trusted(self._params.params, None)
        self._messages = PeerMessages(comm.group, comm.wait)
        self._heads = {rank: torch.empty(_HEAD, dtype=torch.float64) for rank in self._workers}
        self._payloads: dict[int, Tensor] = {}
        self.verdicts: tuple[Any, ...] = ()
        self.hub = Hub.of(strategy, count, self._stands_for, self._missing)

    def before_step(self) -> None:
        """Nothing."""

    def check_finite(self) -> None:
        """Nothing: the rule judges what comes."""

    def after_step(self, norm: float | None) -> None:
        """Nothing."""

    def finish(self) -> None:
        """Nothing: this model is the newest."""

    def average(self, tensors: list[Tensor]) -> list[Tensor]:
        """See `Exchange`: the hub's own."""
        return tensors

    def state(self) -> dict[str, Any]:
        """See `Exchange`."""
        return {"hub": self.hub.state(), "model": self._models.state(), "questions": self._trusted.questions}

    def load(self, state: Mapping[str, Any]) -> None:
        """See `Exchange`."""
        self.hub.load(state["hub"])
        self._models.load(state["model"])
        self._trusted.questions = state["questions"]

    def close(self) -> None:
        """Nothing is held."""

    def serve(self, step: Callable[[], None], trusted: TrustedLoss | None = None) -> None:
        """Hands out tasks, takes what comes of them, and commits, until all workers have left.

        Args:
          step: lets the optimizer step by the gradients that are there.
          trusted: the loss on trusted samples; None: there are none.

        Raises: UsageError if the rule needs some, and there are none.
        """
        require(self._strategy, trusted)
        self._trusted.loss = trusted
        there = set(self._workers)
        for rank in self._workers:
            self.hub.expect(rank)
            self._messages.expect(("head", rank), self._heads[rank], rank)
        while there:
            came = self._messages.next(self.hub.deadline())
            if came is None:
                self.hub.passed(time.monotonic())
            else:
                assert isinstance(came, tuple)  # that is how they are named
                what, rank = came
                self._receive(what, rank, there)
            while (action := self.hub.poll()) is not None:
                self._do(action, step)
        self._messages.flush()

    def _receive(self, what: str, rank: int, there: set[int]) -> None:
        kind, number, numbytes, norm, samples, loss = self._heads[rank].tolist()
        message: FromWorker
        known = kind in (_Kind.READY, _Kind.OFFER, _Kind.PAYLOAD, _Kind.LEAVE) and math.isfinite(number)
        if not known or not 0 <= numbytes <= self._forms[rank].most_bytes:
            log.warning(
                "rank %d sent what is no message (%s): it is left out", rank, self._heads[rank].tolist()
            )
            kind = _Kind.LEAVE
        if what == "payload":
            message = Payload(int(number), self._payloads.pop(rank))
        elif kind == _Kind.READY:
            message = Ready(int(number))
        elif kind == _Kind.LEAVE:
            message = Leave()
            there.discard(rank)
        elif kind == _Kind.PAYLOAD:
            self._payloads[rank] = torch.empty(int(numbytes), dtype=torch.uint8)
            self._messages.expect(("payload", rank), self._payloads[rank], rank)
            return
        else:
            message = Offer(int(number), int(numbytes), norm, samples, loss)
        if rank in there:
            self._messages.expect(("head", rank), self._heads[rank], rank)
        self.hub.handle(rank, message, time.monotonic())

    def _stands_for(self, rank: int, payload: Payload) -> Tensor:
        return self._forms[rank].stands_for(payload.value, payload.number, self._params.values)

    def _missing(self, rank: int, payload: Payload) -> Tensor | None:
        return self._forms[rank].missing(payload.value, payload.number)

    def _do(self, action: Action, step: Callable[[], None]) -> None:
        if isinstance(action, Ask):
            self.hub.answered(self._trusted.answer(action.question), time.monotonic())
        elif isinstance(action, Abandon):
            log.warning("%d contributions come to nothing: %s", len(action.contributions), action.why)
        elif isinstance(action, Step):
            self.verdicts = action.verdicts
            self._params.set_gradients(torch.as_tensor(action.update))
            step()
            self._comm.end_exchange()
        else:
            self._tell(action.member, action.message)

    def _tell(self, rank: int, message: FromHub) -> None:
        if not isinstance(message, Task):
            self._messages.send(_packed(message), rank)
            return
        data = self._models.encode(self._params.values(), message.version)
        self._messages.send(_packed(message, data.numel()), rank)
        self._messages.send(data, rank)


def _packed(message: FromWorker | FromHub, numbytes: int = 0) -> Tensor:
    """The head of a message; `numbytes` of a model come behind it."""
    values: list[float]
    if isinstance(message, Ready):
        values = [_Kind.READY, message.last]
    elif isinstance(message, Offer):
        values = [_Kind.OFFER, message.number, message.numbytes, message.norm, message.samples, message.loss]
    elif isinstance(message, Task):
        values = [_Kind.TASK, message.number, message.version, numbytes]
    elif isinstance(message, Grant):
        values = [_Kind.GRANT, message.number]
    elif isinstance(message, Outcome):
        values = [_Kind.OUTCOME, message.number, _WHY.index(message.why)]
    elif isinstance(message, Payload):
        values = [_Kind.PAYLOAD, message.number, message.value.numel()]
    else:
        values = [_Kind.LEAVE]
    return torch.tensor([*values, *[0.0] * (_HEAD - len(values))], dtype=torch.float64)
