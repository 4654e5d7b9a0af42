"""A worker of a hub, live: an `Exchange` after steps, over whatever link there is.

worker, each exchange                           hub, in `serve`
offer, payload if granted          ->           commit: the optimizer steps
the newest model is its own        <-           next task
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeGuard

import torch
from torch import Tensor

from tweed.cadence import Stop
from tweed.errors import TweedError
from tweed.exchange.cadence_driver import CadenceDriver
from tweed.exchange.context import Context
from tweed.hub.links.base import HubLink
from tweed.hub.live.parameters import Parameters
from tweed.hub.machine.worker import Compute, State, Worker
from tweed.hub.wire.form import ContributionForm, ModelForm
from tweed.hub.wire.messages import End, FromHub, FromWay, Handed, Leave, Task
from tweed.strategy import Strategy

log = logging.getLogger("tweed")


class HubWorker:
    """A worker's side: an `Exchange` after steps. Each one waits for the grant, and for the newest model.

    Args:
      params: those that are trained.
      context: of this worker.
      cadence: when to exchange.
      strategy: what is exchanged, and how it is compressed; with a hub.
      link: to the hub.
      samples: that its contributions count as.

    Attributes:
      over: the hub has ended training. What steps do after that does not last: the model is the hub's last.
    """

    def __init__(
        self,
        params: Mapping[str, Tensor],
        context: Context,
        cadence: CadenceDriver,
        strategy: Strategy,
        link: HubLink,
        samples: float = 1.0,
    ) -> None:
        assert strategy.hub is not None  # that is when it is chosen
        self.paused = self.within_step = False
        self._context, self._cadence, self._link = context, cadence, link
        self._params = Parameters(params.values())
        self._newest = torch.empty(self._params.spec.numel)
        self._begun = torch.empty(self._params.spec.numel)
        owners, spec = context.owners, self._params.spec
        self._form = ContributionForm(strategy, spec, owners.contributor, os.urandom)
        self._models = ModelForm(strategy.hub.model, spec, owners.contributors)
        link.most_bytes = self._models.most_bytes
        link.forms = lambda worker: ContributionForm(strategy, spec, worker)
        self._exchanges, self._samples = strategy.exchange, samples
        self._gradient: Tensor | None = None
        self._loss = math.nan
        self._machine = Worker()
        self._taken = 0  # number of the task whose model the parameters began with
        self._offered = False  # a contribution, of which it is not known yet what came of it
        self._left = False

    @property
    def over(self) -> bool:
        """Whether the hub has ended training. What steps do after that does not last."""
        return self._machine.state is State.ENDED

    def begin(self) -> bool:
        """Asks for a task, before the first step or after a call that was broken off, and takes its model.
        Whether that is the one that was here: if not, a gradient that was computed before is of no use."""
        if self._machine.state is not State.COMPUTING:
            self._machine.linked()
            self._until_task()
        same = torch.equal(self._newest, self._params.values())
        self._take()
        return same

    def before_step(self) -> None:
        """Keeps the gradient, where that is sent: what the step makes of it is thrown away."""
        if not self.over and not self._computes and not self.begin():
            self._gradient = None
        elif self._exchanges == "gradient":
            self._gradient = self._params.gradients()

    @property
    def _computes(self) -> bool:
        """The parameters began with the model of the task that there is."""
        task = self._machine.task
        return self._machine.state is State.COMPUTING and task is not None and task.number == self._taken

    def check_finite(self) -> None:
        """Nothing: the hub's rule judges what is sent."""

    def after_step(self, norm: float | None) -> None:
        """Hands over what the cadence wants exchanged, and takes the newest model."""
        if self.over:
            self._params.set(self._newest)
        elif self._cadence.decide():
            self._exchange()

    @property
    def differs(self) -> bool:
        """The hub has the model that counts."""
        return False

    def finish(self) -> None:
        """Hands over what steps there were since the last exchange. What was not sent is forgotten."""
        self._cadence.handle(Stop())
        if self._exchanges != "gradient" and self._machine.task is not None and self._cadence.decide():
            self._exchange()
        if self._form.is_ahead:
            self._form.forget()
            self._take()

    def average(self, tensors: list[Tensor]) -> list[Tensor]:
        """This worker's own, without what its model is ahead of the hub's by."""
        if self._machine.task is None:
            return tensors
        values = self._params.values() - self._begun + self._newest
        count = len(self._params.params)
        return [*self._params.pieces(values), *tensors[count:]] if self._form.is_ahead else tensors

    def before(self) -> None:
        """None: each exchange counts when it has ended."""

    def state(self) -> dict[str, Any]:
        return {"last": self._machine.last, "form": self._form.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._machine.last = state["last"]
        self._form.load(state["form"])

    def close(self) -> None:
        """Tells the hub that nothing more will come, if it is still there to hear it."""
        if not self._left:
            self._left = True
            with suppress(RuntimeError):  # a failure has been raised before, where it mattered
                self._link.send(Leave())
                self._link.flush()
            self._link.close()

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
        self._settle()
        self._params.set(self._form.begin(self._newest))
        self._begun = self._params.values()
        self._taken = 0 if self._machine.task is None else self._machine.task.number

    def _settle(self) -> None:
        """What was offered last has counted, or came to nothing."""
        if self._offered:
            self._form.over(self._machine.counted)
            self._offered = False

    def _exchange(self) -> None:
        if (value := self._value()) is not None:
            self._hand_over(value)
        self._loss = math.nan
        self._take()
        self._context.end_exchange()

    def _value(self) -> Tensor | None:
        gradient, self._gradient = self._gradient, None
        if self._exchanges == "gradient":
            return gradient
        return self._form.value(self._begun, self._params.values())

    def _hand_over(self, value: Tensor) -> None:
        task = self._machine.task
        assert task is not None  # the last exchange ended with one
        offer, data = self._form.offer(value, task.number, self._samples, self._loss)
        self._context.stats.bytes_packed += data.numel()
        self._offered = True
        self._machine.computed(offer, data)
        self._until_task()

    def _until_task(self) -> None:
        """Does what the machine wants until there is something to compute, or nothing more."""
        try:
            self._drive()
        except TweedError:
            raise
        except BaseException:
            self._link.break_off()  # over another link all is said again
            raise

    def _drive(self) -> None:
        while not self.over:
            action = self._machine.poll()
            if isinstance(action, Compute):
                self._link.replicate(self._machine)
                self._link.flush()
                return
            if action is not None:
                self._link.send(self._machine.as_sent(action))
                continue
            self._link.replicate(self._machine)
            if (came := self._link.receive()) is None:
                self._machine.renewed() if self._link.renewed else self._machine.linked()
            else:
                message, model = came
                if _brings_model(message):
                    self._newest = self._models.decode(model, message.version)
                self._machine.keeps = self._link.keeps
                self._machine.handle(message)
        self._link.replicate(self._machine)
        log.info("the hub has ended training; this model is its last")
        self._left = True
        self._link.close()


def _brings_model(message: FromHub | FromWay) -> TypeGuard[Task | End | Handed]:
    """A task comes with its model, unless that is to be fetched."""
    here = isinstance(message, Task) and message.via is None
    return here or isinstance(message, End) or (isinstance(message, Handed) and message.there)
