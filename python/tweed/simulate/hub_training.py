"""Training through a hub on a virtual clock: the stages that run live, with members' real gradients.

    training = HubTraining(model, strategy, conditions, Members(loss, sgd), outer_sgd)
    training.run.until(seconds=100.0)
    accuracy = score(training.model)

Members compute in this process, several at once (`member_steps`); how long that takes on the virtual clock is
said by `conditions`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tweed.aggregate import Verdict
from tweed.errors import UsageError
from tweed.exchange.terms import terms
from tweed.hub.live.event_log import Began, Committed, EventLog, checksum, software
from tweed.hub.live.trusted import Trusted, require, warn_of_rate
from tweed.hub.machine import Offer, Payload, Step
from tweed.hub.machine.build import hub_of
from tweed.hub.wire.form import ContributionForm, ModelForm
from tweed.hub.wire.messages import Sum
from tweed.rng import source
from tweed.simulate.attacks import Attack, HostileLayers
from tweed.simulate.flat import Flat
from tweed.simulate.hub import Conditions, Job, VirtualHub
from tweed.simulate.member_steps import BatchLoss, MemberSteps
from tweed.simulate.workers import MakeOptimizer
from tweed.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Members:
    """What members do.

    Attributes:
      loss: of a batch. With a `SampleLoss` members compute side by side.
      optimizer: makes that of members: a parameter for each.
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
        self.model, self._newest = model, Flat(model)
        self._strategy, self._members = strategy, members
        self._optimizer = optimizer([self._newest.param])
        warn_of_rate(strategy, self._optimizer)
        self._count = count = conditions.members
        self._sources = [source(conditions.seed, 3, member) for member in range(count)]
        self._forms = [self._form(member) for member in range(count)]
        self._models = ModelForm(strategy.hub.model, self._newest.spec, count)
        self._steps = MemberSteps(model, strategy, members.loss, members.optimizer, count)
        self._seen: deque[Tensor] = deque(maxlen=max(1, count - members.hostile))
        trainable = [param for param in model.parameters() if param.requires_grad]
        samples = Trusted(trainable, None if trusted is None else lambda number: trusted(model, number))
        hub = hub_of(
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
        """Decodes a member's contribution, for an aggregator."""
        return self._forms[member].decode(payload.value, payload.number)

    def _learn(self, jobs: Sequence[Job]) -> list[tuple[Offer, Tensor]]:
        begun = []
        for member, action, model in jobs:
            self._forms[member].over(action.counted)
            begun.append((member, self._forms[member].begin(model)))
        results = self._steps.run(begun)
        return [
            self._offer(job, start, *result)
            for job, (_, start), result in zip(jobs, begun, results, strict=True)
        ]

    def _offer(self, job: Job, begun: Tensor, end: Tensor, loss: float) -> tuple[Offer, Tensor]:
        """What there is to send after the steps of a task: see `Hub`."""
        member, number, form = job.member, job.compute.task.number, self._forms[job.member]
        value = end if self._strategy.exchange == "gradient" else form.value(begun, end)
        sent = self._spoilt(member, value, number)
        return form.offer(sent.clone(), number, self._members.samples(member), loss, value)

    def _forget(self, member: int) -> None:
        """Begins anew, but for the data and the draws: noise that comes twice would hide nothing."""
        self._forms[member] = self._form(member)
        self._steps.forget(member)

    def _form(self, member: int) -> ContributionForm:
        return ContributionForm(self._strategy, self._newest.spec, member, self._sources[member])

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
