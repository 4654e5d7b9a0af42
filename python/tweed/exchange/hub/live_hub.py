"""A hub, live: an `Exchange` that does nothing by itself, and `serve`, over whatever links there are."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tweed.aggregate import Verdict
from tweed.exchange.hub.actions import Abandon, Action, Ask, Step
from tweed.exchange.hub.form import ContributionForm, ModelForm
from tweed.exchange.hub.hub import Hub
from tweed.exchange.hub.links import Linked, MemberLinks, News
from tweed.exchange.hub.messages import End, FromHub, Payload, Sum, Task
from tweed.exchange.hub.parameters import Parameters
from tweed.exchange.hub.trusted import Trusted, TrustedLoss, require
from tweed.exchange.place import Place
from tweed.strategy import Strategy

log = logging.getLogger("tweed")


@dataclass(frozen=True, slots=True)
class Contribution:
    """What became of one at a commit.

    Attributes:
      member: whose.
      number: of its task.
      delay: commits between the model that it was computed on and this one.
      weight: with which it counted; 0: it was not believed. None: the rule says nothing.
      reason: why, in words.
    """

    member: int
    number: int
    delay: int
    weight: float | None
    reason: str


class HubServer:
    """The hub's side: an `Exchange` that does nothing by itself, and `serve`.

    Args:
      params: those that are trained.
      place: of the hub.
      strategy: what is exchanged, how, and what is made of it; with a hub.
      links: to workers.

    Attributes:
      hub: the machine.
      verdicts: on the contributions of the last commit.
      contributions: those, with how old they were.
    """

    def __init__(
        self, params: Mapping[str, Tensor], place: Place, strategy: Strategy, links: MemberLinks
    ) -> None:
        assert strategy.hub is not None  # that is when it is chosen
        self.paused = False
        self._place, self._strategy, self._links = place, strategy, links
        self._params = Parameters(list(params.values()))
        self._workers = place.owners.contributors
        self._forms: dict[int, ContributionForm] = {}
        self._models = ModelForm(strategy.hub.model, self._params.spec, self._workers)
        self._trusted = Trusted(self._params.params, None)
        self.verdicts: tuple[Verdict, ...] = ()
        self.contributions: tuple[Contribution, ...] = ()
        self._bases: dict[tuple[int, int], int] = {}  # versions, of what is counted for the next commit
        links.most_bytes, links.numel = self._new_form(0).most_bytes, self._params.spec.numel
        value, sum_bytes, able = self._stands_for, 4 * self._params.spec.numel, set[int]()
        self.hub = Hub.of(
            strategy, self._workers, value, self._missing, self._sum_stands_for, sum_bytes, able
        )

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
        return {
            "hub": self.hub.state(),
            "model": self._models.state(),
            "questions": self._trusted.questions,
            "links": self._links.state(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """See `Exchange`."""
        self.hub.load(state["hub"])
        self._models.load(state["model"])
        self._trusted.questions = state["questions"]
        self._links.load(state["links"])

    def close(self) -> None:
        """Nobody comes in any more."""
        self._links.close()

    def serve(
        self,
        step: Callable[[], None],
        trusted: TrustedLoss | None = None,
        commits: int | None = None,
        after: Callable[[int], None] = lambda version: None,
    ) -> None:
        """Hands out tasks, takes what comes of them, and commits, until all workers have left.

        Args:
          step: lets the optimizer step by the gradients that are there.
          trusted: the loss on trusted samples; None: there are none.
          commits: after so many in all, those of an earlier process included, workers are told that training
            has ended; None: never.
          after: called after each commit, with the version of the model.

        Raises: UsageError if the rule needs trusted samples, and there are none.
        """
        require(self._strategy, trusted)
        self._trusted.loss = trusted
        if commits is not None and self.hub.version >= commits:  # a checkpoint of the end
            self._end()
            return
        while not self._links.over:
            # One after the other: what a contribution stands for may depend on the step before.
            came: Sequence[News | None] = self._links.next(self.hub.deadline())
            for news in came or [None]:
                self._hear(news)
                for version in self._act(step):
                    after(version)
                    if commits is not None and version >= commits:
                        self._end()
                        return
        self._links.flush()

    def _hear(self, news: News | None) -> None:
        """Hands over what has happened; None: time has passed."""
        now = time.monotonic()
        if news is None:
            self.hub.passed(now)
            return
        member, message = news
        if message is Linked.JOINED:
            self.hub.expect(member)
        elif message is Linked.LEFT:
            self.hub.left(member, now)
        elif message is Linked.ABLE:
            self.hub.may_aggregate(member)
        else:
            self.hub.handle(member, message, now)

    def _act(self, step: Callable[[], None]) -> Iterator[int]:
        """Does what the hub wants. Versions of the model, as they come."""
        while (action := self.hub.poll()) is not None:
            self._do(action, step)
            if isinstance(action, Step):
                yield action.version

    def _end(self) -> None:
        version = self.hub.version
        self._links.end(End(version), self._encoded(version))

    def _do(self, action: Action, step: Callable[[], None]) -> None:
        if isinstance(action, Ask):
            self.hub.answered(self._trusted.answer(action.question), time.monotonic())
        elif isinstance(action, Abandon):
            log.warning("%d contributions come to nothing: %s", len(action.contributions), action.why)
        elif isinstance(action, Step):
            self._note(action)
            self._params.set_gradients(torch.as_tensor(action.update))
            step()
            self._place.end_exchange()
        else:
            self._tell(action.member, action.message)

    def _note(self, step: Step) -> None:
        self.verdicts = step.verdicts
        by_member = {verdict.sender: verdict for verdict in step.verdicts}
        found = []
        for member, number in step.contributions:
            delay = step.version - 1 - self._bases[member, number]
            verdict = by_member.get(member)
            said = (None, "") if verdict is None else (verdict.weight, verdict.reason.value)
            found.append(Contribution(member, number, delay, *said))
        self.contributions = tuple(found)
        self._bases.clear()

    def _tell(self, member: int, message: FromHub) -> None:
        model = None
        if isinstance(message, Task) and message.via is None:  # else another member has it
            model = self._encoded(message.version)
        self._place.stats.bytes_answered += 0 if model is None else model.numel()
        self._links.tell(member, message, model)

    def _encoded(self, version: int) -> Tensor:
        return self._models.encode(self._params.values(), version)

    def _stands_for(self, member: int, payload: Payload) -> Tensor:
        self._bases[member, payload.number] = self.hub.members[member].version
        self._place.stats.bytes_exchanged += payload.value.numel()
        form = self._form(member)
        return form.stands_for(payload.value, payload.number, self._params.values)

    def _sum_stands_for(self, message: Sum) -> Tensor:
        named = (*message.tasks, *message.left_out)
        self._bases.update({task: self.hub.members[task[0]].version for task in named})
        self._place.stats.bytes_exchanged += 4 * message.value.numel()
        form = self._form(named[0][0])  # it does not matter whose contributions are in it
        return form.sum_stands_for(message.value, len(message.tasks), self._params.values)

    def _missing(self, member: int, payload: Payload) -> Tensor | None:
        return self._form(member).missing(payload.value, payload.number)

    def _form(self, member: int) -> ContributionForm:
        if member not in self._forms:
            self._forms[member] = self._new_form(self._links.worker(member))
        return self._forms[member]

    def _new_form(self, worker: int) -> ContributionForm:
        return ContributionForm(self._strategy, self._params.spec, worker, self._workers)
