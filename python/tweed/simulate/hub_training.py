"""Training through a hub on a virtual clock: the stages that run live, with members' real gradients.

    training = HubTraining(model, strategy, conditions, Members(loss, sgd), outer_sgd)
    training.run.until(seconds=100.0)
    accuracy = score(training.model)

Members compute one after the other in this process, each when its task arrives; how long that takes is said
by `conditions`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tweed.aggregate import Verdict
from tweed.cadence import StepDone
from tweed.errors import UsageError
from tweed.exchange.hub import Hub, Offer, Payload, Step
from tweed.exchange.hub.event_log import Began, Committed, EventLog, checksum, software
from tweed.exchange.hub.form import ContributionForm, ModelForm
from tweed.exchange.hub.messages import Sum
from tweed.exchange.hub.trusted import Trusted, require, warn_of_rate
from tweed.exchange.hub.worker import Compute
from tweed.exchange.proximal import Proximal
from tweed.exchange.terms import terms
from tweed.rng import source
from tweed.simulate.attacks import Attack, HostileLayers
from tweed.simulate.flat import Flat
from tweed.simulate.hub import Conditions, VirtualHub
from tweed.simulate.workers import MakeOptimizer, copies
from tweed.strategy import Strategy

#: The loss of a member's next batch, by the member and the batch's number, with the model it is given.
BatchLoss = Callable[[int, nn.Module, int], Tensor]


@dataclass(frozen=True, slots=True)
class Members:
    """What members do.

    Attributes:
      loss: of a batch.
      optimizer: makes a member's, which goes on from task to task.
      samples: that a member's contributions count as.
      hostile: the last so many members send what `attack` makes of the latest honest contributions, as many
        as there are honest members. In step these are of the same commit only if all members take equally
        long; else some may be of the one before.
      attack: None: nobody is hostile.
      layers: what becomes of layers of what any member sends; None: nothing.
    """

    loss: BatchLoss
    optimizer: MakeOptimizer
    samples: Callable[[int], float] = lambda member: 1.0
    hostile: int = 0
    attack: Attack | None = None
    layers: HostileLayers | None = None


class HubTraining:
    """Members train copies of `model` behind a hub, by `strategy`.

    Args:
      model: float32, on the host; it becomes the hub's. Buffers, such as those of batch norm, are those of
        one model for all members.
      strategy: with a `Hub`, whose rank is not looked at.
      conditions: of members and network.
      members: what they do.
      optimizer: makes the hub's.
      trusted: the loss of the model that is given on a batch of samples that the hub trusts, by its number;
        None: there are none.
      log: of what the hub's machine is given, as a live hub keeps one; None: there is none.

    Attributes:
      model: the hub's, the newest.
      run: the hub on its clock; `run.until` goes on.
      verdicts: on the contributions of each commit.

    Raises: UsageError for a strategy without a hub, or that judges by trusted samples where there are none.
    Cost: memory for the models and contributions that are under way; with error feedback up to three models
      more for each member, and what its optimizer keeps; with an attack a contribution of each honest one.
    """

    def __init__(
        self,
        model: nn.Module,
        strategy: Strategy,
        conditions: Conditions,
        members: Members,
        optimizer: MakeOptimizer,
        trusted: Callable[[nn.Module, int], Tensor] | None = None,
        log: EventLog | None = None,
    ) -> None:
        if strategy.hub is None:
            raise UsageError(f"{strategy!r} has no hub: give collective=Hub(0), or simulate it by Workers")
        require(strategy, trusted)
        [copy] = copies(model, 1)
        self.model, self._newest = model, Flat(model)
        self._local_model, self._local = copy, Flat(copy)
        self._strategy, self._members = strategy, members
        self._optimizer = optimizer([self._newest.param])
        warn_of_rate(strategy, self._optimizer)
        self._count = count = conditions.members
        self._sources = [source(conditions.seed, 3, member) for member in range(count)]
        self._forms = [self._form(member) for member in range(count)]
        self._models = ModelForm(strategy.hub.model, self._newest.spec, count)
        self._cadences = [strategy.cadence.start() for _ in range(count)]
        self._batches = [0] * count
        self._losses = [math.nan] * count  # each at the model that came with its task
        self._seen: deque[Tensor] = deque(maxlen=max(1, count - members.hostile))
        self._optimizers: dict[int, Optimizer] = {}
        trainable = [param for param in model.parameters() if param.requires_grad]
        samples = Trusted(trainable, None if trusted is None else lambda number: trusted(model, number))
        hub = Hub.of(
            strategy,
            count,
            self._stands_for,
            self._missing,
            self._sum_stands_for,
            4 * self._newest.spec.numel,
        )
        self.verdicts: list[tuple[Verdict, ...]] = []
        self._log = log
        if log is not None:
            state = {"hub": hub.state(), "model": self._models.state(), "questions": 0, "links": {}}
            agreed, values = tuple(terms(model, strategy, {})), [param.detach() for param in trainable]
            optimizer_state = self._optimizer.state_dict()
            log.append(Began(agreed, count, state, values, optimizer_state, software()))
        heard = (lambda event: None) if log is None else log.append
        self.run = VirtualHub(
            hub, conditions, self._learn, self._apply, samples.answer, self._forget, self._decode, heard
        )

    # The hub

    @torch.no_grad()
    def _apply(self, step: Step | None) -> tuple[Tensor, int]:
        if step is not None:
            self.verdicts.append(step.verdicts)
            self._newest.grads.copy_(torch.as_tensor(step.update))
            self._optimizer.step()
            if self._log is not None:
                self._log.append(Committed(step.version, checksum(self._newest.values)))
        version = 0 if step is None else step.version
        data = self._models.encode(self._newest.values, version)
        return self._models.decode(data, version), data.numel()

    def _stands_for(self, member: int, payload: Payload) -> Tensor:
        form = self._forms[member]
        return form.stands_for(payload.value, payload.number, lambda: self._newest.values)

    def _missing(self, member: int, payload: Payload) -> Tensor | None:
        return self._forms[member].missing(payload.value, payload.number)

    def _sum_stands_for(self, message: Sum) -> Tensor:
        form = self._forms[0]  # of a sum it does not matter whose contributions are in it
        return form.sum_stands_for(message.value, len(message.tasks), lambda: self._newest.values)

    # A member

    def _decode(self, member: int, payload: Payload) -> Tensor:
        """For an aggregator."""
        return self._forms[member].decode(payload.value, payload.number)

    def _learn(self, member: int, action: Compute, model: Tensor) -> tuple[Offer, Tensor]:
        form, number = self._forms[member], action.task.number
        form.over(action.counted)
        value = self._value(member, form.begin(model))
        sent = self._spoilt(member, value, number)
        return form.offer(sent.clone(), number, self._members.samples(member), self._losses[member], value)

    def _value(self, member: int, begun: Tensor) -> Tensor:
        """What there is to send after the steps of a task that begin there: see `Hub`."""
        with torch.no_grad():
            self._local.values.copy_(begun)
        if member not in self._optimizers:
            self._optimizers[member] = self._members.optimizer([self._local.param])
        cadence, optimizer = self._strategy.cadence, self._optimizers[member]
        proximal = Proximal([self._local.param], cadence.proximal)
        self._losses[member] = math.nan
        while True:
            self._local.grads.zero_()
            loss = self._members.loss(member, self._local_model, self._batches[member])
            loss.backward()  # type: ignore[no-untyped-call]
            if math.isnan(self._losses[member]):
                self._losses[member] = float(loss.detach())
            self._batches[member] += 1
            if cadence.proximal:
                proximal.pull()
            if self._strategy.exchange != "gradient":
                optimizer.step()
            now = float(self._batches[member])
            self._cadences[member] = cadence.handle(StepDone(None), self._cadences[member], now)
            decision, self._cadences[member] = cadence.poll(self._cadences[member], now)
            if decision.exchange:
                break
        if self._strategy.exchange == "gradient":
            return self._local.grads.clone()
        return self._forms[member].value(begun, self._local.values)

    def _forget(self, member: int) -> None:
        """Begins anew, but for the data and the draws: noise that comes twice would hide nothing."""
        self._forms[member] = self._form(member)
        self._cadences[member] = self._strategy.cadence.start()
        self._optimizers.pop(member, None)

    def _form(self, member: int) -> ContributionForm:
        return ContributionForm(self._strategy, self._newest.spec, member, self._count, self._sources[member])

    def _spoilt(self, member: int, value: Tensor, number: int) -> Tensor:
        """What is sent in the place of `value`, where the member or some layers are hostile."""
        if self._members.layers is not None:
            value = self._members.layers.spoilt(value, self._newest.spec.sizes, member, number)
        attack = self._members.attack
        if attack is None:
            return value
        place = member - (len(self._forms) - self._members.hostile)
        if place < 0:
            self._seen.append(value.clone())
            return value
        own, honest = value.expand(self._members.hostile, -1), torch.stack([*self._seen] or [value])
        return attack.contributions(own, honest, number)[place].contiguous()
