"""A hub, live: an `Exchange` that does nothing by itself, and `serve`, over whatever links there are."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tweed.aggregate import Question, Verdict
from tweed.errors import UsageError
from tweed.exchange.context import Context
from tweed.hub.links.base import Linked, MemberLinks
from tweed.hub.live.contribution import Contribution
from tweed.hub.live.event_log import Began, Committed, EventLog, checksum, software
from tweed.hub.live.parameters import Parameters
from tweed.hub.live.tally import Tally
from tweed.hub.live.trusted import Trusted, TrustedLoss, require
from tweed.hub.machine.actions import Abandon, Action, Ask, Distrust, Step
from tweed.hub.machine.build import hub_of
from tweed.hub.machine.events import Able, Answered, Came, Event, Joined, Left, Passed, give
from tweed.hub.standby.machine import Standby
from tweed.hub.wire.form import ContributionForm, ModelForm
from tweed.hub.wire.messages import End, FromHub, Payload, Sum, Task
from tweed.metrics import job
from tweed.metrics.hub_snapshot import HubCounts
from tweed.strategy import Strategy

log = logging.getLogger("tweed")


class HubServer:
    """The hub's side: an `Exchange` that does nothing by itself, and `serve`.

    Args:
      params: those that are trained.
      context: of the hub.
      strategy: what is exchanged, how, and what is made of it; with a hub.
      links: to workers.

    Attributes:
      hub: the machine.
      verdicts: on the contributions of the last commit.
      contributions: those, with how old they were.
      models: how the model goes to members.
      standby: what this process is as long as another one is the hub; None: it is the hub.
      committed: called after each commit, for a standby.
    """

    def __init__(
        self, params: Mapping[str, Tensor], context: Context, strategy: Strategy, links: MemberLinks
    ) -> None:
        assert strategy.hub is not None  # that is when it is chosen
        self.paused = self.within_step = False
        self._context, self._strategy, self._links = context, strategy, links
        self._params = Parameters(params.values())
        self._workers = context.owners.contributors
        self._forms: dict[int, ContributionForm] = {}
        self.models = ModelForm(strategy.hub.model, self._params.spec, self._workers)
        self._trusted = Trusted(self._params.params, None)
        self.verdicts: tuple[Verdict, ...] = ()
        self.contributions: tuple[Contribution, ...] = ()
        self._worker_of: dict[int, int] = {}  # by member
        self._tally = Tally()
        self._log: EventLog | None = None
        self._begun = False  # the machine was given something
        links.most_bytes, links.numel = self._new_form(0).most_bytes, self._params.spec.numel
        self.hub = hub_of(
            strategy,
            self._workers,
            self._stands_for,
            self._missing,
            self._sum_stands_for,
            sum_bytes=4 * self._params.spec.numel,
            able=set(),
        )
        self.standby: Standby | None = None
        self.committed: Callable[[Step], None] = lambda step: None

    def follow(self) -> Standby:
        """Another process is the hub, and this one applies what that commits. Raises UsageError for a rule
        that cannot have a standby."""
        each = self._strategy.hub is not None and self._strategy.hub.one_by_one
        self.standby = Standby(
            self._strategy.aggregate, each, self._stands_for, self._missing, self._sum_stands_for
        )
        return self.standby

    def succeed(self) -> None:
        """This process is the hub from now on."""
        assert self.standby is not None  # it has followed
        self.standby.take_over(self.hub, time.monotonic())
        self.standby = None

    def before_step(self) -> None:
        """Does nothing, as a hub takes no steps by itself."""

    def check_finite(self) -> None:
        """Nothing: the rule judges what comes."""

    def after_step(self, norm: float | None) -> None:
        """Does nothing, as a hub takes no steps by itself."""

    @property
    def differs(self) -> bool:
        """The hub has the model that counts."""
        return False

    def finish(self) -> None:
        """Nothing: this model is the newest."""

    def average(self, tensors: list[Tensor]) -> list[Tensor]:
        """The `tensors` as they are: the hub's own are the model that counts."""
        return tensors

    def before(self) -> None:
        """None: each exchange counts when it has ended."""

    def state(self) -> dict[str, Any]:
        return {
            "hub": (self.standby or self.hub).state(),
            "model": self.models.state(),
            "questions": self._trusted.questions,
            "links": self._links.state(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self.hub.load(state["hub"])
        self.models.load(state["model"])
        self._trusted.questions = state["questions"]
        self._links.load(state["links"])

    @property
    def dropped(self) -> tuple[int, ...]:
        """The members whose contributions were dropped between the last two updates."""
        return self._tally.dropped

    def metrics(self) -> HubCounts:
        """What the hub has counted of its members; from any thread."""
        return self._tally.snapshot(self.hub, self._links, time.monotonic())

    def close(self) -> None:
        """Nobody comes in any more."""
        job.leave_hub(self.metrics)
        self._links.close()
        if self._log is not None:
            self._log.close()

    def keep_log(
        self, path: str | os.PathLike[str], terms: Sequence[str], optimizer: Mapping[str, Any]
    ) -> None:
        """Writes what the machine is given to a file, from here on; see `event_log`.

        Args:
          terms: of model and strategy, a line each.
          optimizer: the state of the one that steps.

        Raises: UsageError if the machine was given something before that is not in that file; and as
          `EventLog`.
        """
        if self._log is not None and self._log.path == Path(path).absolute():
            return
        if self._begun:
            raise UsageError(
                f"the hub has served already, and what it was given then is not in {path}: give log= to its "
                "first run.serve(), and the same log to later ones"
            )
        params = [param.detach().cpu() for param in self._params.params]
        self._log = EventLog(path)
        self._log.append(Began(tuple(terms), self._workers, self.state(), params, optimizer, software()))

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
        job.follow_hub(self.metrics)
        if commits is not None and self.hub.version >= commits:  # a checkpoint of the end
            self._end()
            return
        while not self._links.over:
            for event in self._events():
                self.handle(event)
                for version in self.act(step):
                    after(version)
                    if commits is not None and version >= commits:
                        self._end()
                        return
        self._links.flush()

    def handle(self, event: Event) -> None:
        """Hands an event to the machine, after it was logged. `act` comes before the next one."""
        self._begun = True
        if self._log is not None:
            self._log.append(event)
        if isinstance(event, Joined):
            self._worker_of[event.member] = event.worker
        elif isinstance(event, Came) and isinstance(event.message, Sum):
            self._tally.came(event.member, 4 * event.message.value.numel())
        give(self.hub, event)

    def act(self, step: Callable[[], None]) -> Iterator[int]:
        """Does what the machine wants, and yields the version of the model after each commit.

        Args:
          step: as of `serve`.
        """
        while (action := self.hub.poll()) is not None:
            self._do(action, step)
            if isinstance(action, Step):
                if self._log is not None:
                    self._log.append(Committed(action.version, self.checksum()))
                yield action.version

    def checksum(self) -> int:
        """The checksum of the model, as `event_log` has it."""
        return checksum(self._params.values())

    def _events(self) -> Iterator[Event]:
        """What happens next: the one place that looks at links and at the clock."""
        came = self._links.next(self.hub.deadline())
        now = time.monotonic()
        if not came:
            yield Passed(now)
        for member, message in came:
            if message is Linked.JOINED:
                yield Joined(member, self._links.worker(member), now)
            elif message is Linked.ABLE:
                yield Able(member, now)
            elif message is Linked.LEFT:
                yield Left(member, now)
            else:
                yield Came(member, message, now)

    def _end(self) -> None:
        version = self.hub.version
        self._links.end(End(version), self._encoded(version))

    def _do(self, action: Action, step: Callable[[], None]) -> None:
        if isinstance(action, Ask):
            self._ask(action.question)
        elif isinstance(action, Abandon):
            log.warning("%d contributions come to nothing: %s", len(action.contributions), action.why)
        elif isinstance(action, Distrust):
            name = self._links.keys.get(action.member, "")[:8] or "a rank"
            log.warning("member %d (%s) adds up no more: %s", action.member, name, action.why)
        elif isinstance(action, Step):
            self.commit(action, step)
            self.committed(action)
        else:
            self._tell(action.member, action.message)

    def _ask(self, question: Question) -> None:
        self.handle(Answered(self._trusted.answer(question), time.monotonic()))

    def commit(self, made: Step, step: Callable[[], None]) -> None:
        """Lets the optimizer step by what was committed."""
        self._note(made)
        self._params.set_gradients(torch.as_tensor(made.update))
        step()
        self._context.end_exchange()

    def _note(self, step: Step) -> None:
        self.verdicts = step.verdicts
        by_member = {verdict.sender: verdict for verdict in step.verdicts}
        bases = {task: unit.base_version for unit in step.units for task in unit.tasks}
        found = []
        for member, number in step.contributions:
            delay = step.version - 1 - bases[member, number]
            verdict = by_member.get(member)
            said = (None, "") if verdict is None else (verdict.weight, verdict.reason.value, verdict.score)
            found.append(Contribution(member, number, delay, *said))
        self.contributions = tuple(found)
        self._tally.committed(self.contributions, time.monotonic())

    def _tell(self, member: int, message: FromHub) -> None:
        fetches = isinstance(message, Task) and message.via is not None  # another member has the model
        model = self._encoded(message.version) if isinstance(message, Task) and not fetches else None
        numbytes = 0 if model is None else model.numel()
        self._context.stats.bytes_answered += numbytes
        self._tally.told(member, message, numbytes)
        self._links.tell(member, message, model)

    def _encoded(self, version: int) -> Tensor:
        return self.models.encode(self._params.values(), version)

    def _stands_for(self, member: int, payload: Payload) -> Tensor:
        self._context.stats.bytes_exchanged += payload.value.numel()
        self._tally.came(member, payload.value.numel())
        form = self._form(member)
        return form.stands_for(payload.value, payload.number, self._params.values)

    def _sum_stands_for(self, message: Sum) -> Tensor:
        named = (*message.tasks, *message.left_out)
        self._context.stats.bytes_exchanged += 4 * message.value.numel()
        form = self._form(named[0][0])  # it does not matter whose contributions are in it
        return form.sum_stands_for(message.value, len(message.tasks), self._params.values)

    def _missing(self, member: int, payload: Payload) -> Tensor | None:
        return self._form(member).missing(payload.value, payload.number)

    def _form(self, member: int) -> ContributionForm:
        if member not in self._forms:
            known = member in self._worker_of  # else this is a standby, which it has not joined
            self._forms[member] = self._new_form(
                self._worker_of[member] if known else self._links.worker(member)
            )
        return self._forms[member]

    def _new_form(self, worker: int) -> ContributionForm:
        return ContributionForm(self._strategy, self._params.spec, worker)
