"""A worker of a hub, live: an `Exchange` after steps, over whatever link there is.

worker, each exchange                           hub, in `serve`
offer, payload if granted          ->           commit: the optimizer steps
the newest model is its own        <-           next task
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from tweed.exchange.cadence_driver import CadenceDriver
from tweed.exchange.hub.form import ContributionForm, ModelForm
from tweed.exchange.hub.links import HubLink
from tweed.exchange.hub.messages import End, Leave, Offer, Task
from tweed.exchange.hub.parameters import Parameters
from tweed.exchange.hub.worker import Compute, State, Worker
from tweed.exchange.place import Place
from tweed.strategy import Strategy

log = logging.getLogger("tweed")


class HubWorker:
    """A worker's side: an `Exchange` after steps. Each one waits for the grant, and for the newest model.

    Args:
      params: those that are trained.
      place: of this worker.
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
        place: Place,
        cadence: CadenceDriver,
        strategy: Strategy,
        link: HubLink,
        samples: float = 1.0,
    ) -> None:
        assert strategy.hub is not None  # that is when it is chosen
        self.paused = False
        self._place, self._cadence, self._link = place, cadence, link
        self._params = Parameters(list(params.values()))
        self._model = torch.empty(self._params.spec.numel)
        owners, spec = place.owners, self._params.spec
        self._form = ContributionForm(strategy, spec, owners.contributor, owners.contributors)
        self._models = ModelForm(strategy.hub.model, spec, owners.contributors)
        link.most_bytes = self._models.most_bytes
        self._exchanges, self._samples = strategy.exchange, samples
        self._gradient: Tensor | None = None
        self._machine = Worker()
        self._left = False

    @property
    def over(self) -> bool:
        """See the class."""
        return self._machine.state is State.ENDED

    def begin(self) -> bool:
        """Asks for a task, before the first step, and takes its model. Whether that is the one that was here:
        if not, a gradient that was computed before is of no use."""
        self._machine.linked()
        self._until_task()
        same = torch.equal(self._model, self._params.values())
        self._take()
        return same

    def before_step(self) -> None:
        """Keeps the gradient, where that is sent: what the step makes of it is thrown away."""
        if not self.over and self._machine.task is None and not self.begin():
            self._gradient = None
        elif self._exchanges == "gradient":
            self._gradient = self._params.gradients()

    def check_finite(self) -> None:
        """Nothing: the hub's rule judges what is sent."""

    def after_step(self, norm: float | None) -> None:
        """Hands over what the cadence wants exchanged, and takes the newest model."""
        if self.over:
            self._params.set(self._model)
        elif self._cadence.decide():
            self._exchange()

    def finish(self) -> None:
        """Hands over what steps there were since the last exchange; the cadence knows of the stop."""
        if self._exchanges != "gradient" and self._machine.task is not None and self._cadence.decide():
            self._exchange()

    def average(self, tensors: list[Tensor]) -> list[Tensor]:
        """See `Exchange`: this worker's own."""
        return tensors

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
                self._link.send(Leave())
                self._link.flush()
            self._link.close()

    def _take(self) -> None:
        """The model that came, as the parameters' type holds it: what they move by counts from there."""
        self._params.set(self._model)
        self._model = self._params.values()

    def _exchange(self) -> None:
        if (value := self._value()) is not None:
            self._hand_over(value)
        self._take()
        self._place.end_exchange()

    def _value(self) -> Tensor | None:
        gradient, self._gradient = self._gradient, None
        if self._exchanges == "gradient":
            return gradient
        return self._form.value(self._model, self._params.values())

    def _hand_over(self, value: Tensor) -> None:
        task = self._machine.task
        assert task is not None  # the last exchange ended with one
        data, norm = self._form.encode(value, task.number)
        self._place.stats.bytes_packed += data.numel()
        self._machine.computed(Offer(task.number, data.numel(), norm, self._samples), data)
        self._until_task()
        self._form.over(self._machine.counted)

    def _until_task(self) -> None:
        """Does what the machine wants until there is something to compute, or nothing more."""
        while not self.over:
            action = self._machine.poll()
            if isinstance(action, Compute):
                self._link.flush()
                return
            if action is not None:
                self._link.send(action)
            elif (came := self._link.receive()) is None:
                self._machine.linked()
            else:
                message, model = came
                if isinstance(message, Task | End):
                    self._model = self._models.decode(model, message.version)
                self._machine.handle(message)
        log.info("the hub has ended training; this model is its last")
        self._left = True
        self._link.close()
