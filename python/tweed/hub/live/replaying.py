"""A hub's machine and forms over the records of its log: the same commits, and the same bits.

    record      what it does
    Began       a fresh hub, with the model and the state that are in it
    an event    is handed to the machine; what that wants is done, but nobody hears of it
    Committed   is compared with the commit that came of the events before it

What cannot happen: an event is handed over before all is done that came of the one before; something is asked
of trusted samples, of a link or of a clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tweed.aggregate import Question
from tweed.errors import DataError, StrategyError, TweedError, UsageError
from tweed.exchange.communicator import Stats
from tweed.exchange.context import Ungrouped
from tweed.exchange.owners import Owners
from tweed.exchange.terms import terms
from tweed.hub.links.base import News
from tweed.hub.live.contribution import Contribution
from tweed.hub.live.event_log import Began, Committed, LoggedEvents, software
from tweed.hub.live.hub import HubServer
from tweed.hub.live.trusted import batches
from tweed.hub.wire.messages import End, FromHub
from tweed.links import hello
from tweed.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Commit:
    """One of a replay; see `Run.contributions`."""

    version: int
    contributions: tuple[Contribution, ...]


class Replaying:
    """See above.

    Args:
      model, optimizer, strategy: of the hub's form.
      events: the log.
      step: lets the optimizer step by the gradients that are there.

    Attributes:
      commits: so far, by version, without what was lost when a process began with an older model.
      checked: how many commits had the bits that the log says.
      processes, events: that were met.

    Raises: StrategyError for a strategy without a hub.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        strategy: Strategy,
        log: LoggedEvents,
        step: Callable[[], None],
    ) -> None:
        if strategy.hub is None:
            raise StrategyError(f"{strategy!r} has no hub, and the log {log.path} is of one that has")
        self._model, self._optimizer, self._strategy = model, optimizer, strategy
        self._records, self._step, self._log = log, step, f"the log {log.path}"
        self._server: _Again | None = None
        self.commits: dict[int, Commit] = {}
        self.checked = self.processes = self.events = 0
        self._checksums: dict[int, int] = {}
        self._unchecked: deque[int] = deque()
        self._software: Mapping[str, str] = {}

    def versions(self) -> Iterator[int]:
        """Goes through the log, and yields the version of the model after each commit."""
        for record in self._records:
            if isinstance(record, Began):
                self._begin(record)
            elif isinstance(record, Committed):
                self._check(record)
            else:
                self.events += 1
                self._server_that_serves.handle(record)
                for version in self._server_that_serves.act(self._step):
                    self._note(version)
                    yield version

    def state(self) -> dict[str, Any]:
        """The state of the hub's exchange, as in a checkpoint."""
        return self._server_that_serves.state()

    @property
    def _server_that_serves(self) -> _Again:
        if self._server is None:
            raise DataError(f"{self._log} does not say what its hub began with: its first record is missing")
        return self._server

    def _note(self, version: int) -> None:
        server = self._server_that_serves
        self.commits[version] = Commit(version, server.contributions)
        self._checksums[version] = server.checksum()
        self._unchecked.append(version)

    def _begin(self, began: Began) -> None:
        """As a process that takes its state from a checkpoint: what was committed since is lost."""
        self._check_terms(began.terms)
        self.processes, self._software = self.processes + 1, began.software
        trained = {name: param for name, param in self._model.named_parameters() if param.requires_grad}
        with torch.no_grad():
            for param, value in zip(trained.values(), began.params, strict=True):
                param.copy_(value)
        try:
            self._optimizer.load_state_dict(dict(began.optimizer))
        except (ValueError, KeyError) as error:
            raise UsageError(f"{self._log} was written with another optimizer: {error}") from None
        owners = Owners(0, began.workers + 1, self._strategy.aggregate, server=0)
        self._server = _Again(trained, Ungrouped(Stats(), owners), self._strategy, NoLinks())
        self._server.load(began.state)
        self._go_on_from(self._server.hub.version, self._server.checksum())

    def _go_on_from(self, version: int, checksum: int) -> None:
        if self._checksums.get(version, checksum) != checksum:
            raise DataError(
                f"{self._log} goes on with a model of version {version} that is not the one that it had: it "
                "is the log of two runs. Give each a file of its own"
            )
        self._unchecked.clear()
        for lost in [later for later in self.commits if later > version]:
            del self.commits[lost], self._checksums[lost]

    def _check_terms(self, theirs: Sequence[str]) -> None:
        ours = terms(self._model, self._strategy, {})
        if ours[0] != theirs[0]:
            raise StrategyError(
                f"{self._log} was written with {theirs[0]}, and {ours[0]} was given: give the former"
            )
        if ours != list(theirs):
            difference = hello.difference(list(theirs), ours)
            raise UsageError(f"{self._log} was written with another model: {difference}")

    def _check(self, committed: Committed) -> None:
        if not self._unchecked or self._unchecked[0] != committed.version:
            raise self._differs(committed.version, "does not come next")
        self._unchecked.popleft()
        if self._checksums[committed.version] != committed.checksum:
            raise self._differs(committed.version, "comes to other bits of the model")
        self.checked += 1

    def _differs(self, version: int, how: str) -> TweedError:
        here = software()
        other = [
            f"{name} {is_}, here {here.get(name)}"
            for name, is_ in self._software.items()
            if here.get(name) != is_
        ]
        reasons = (
            f"written with {'; '.join(other)}"
            if other
            else "did `after` change something that it did not here?"
        )
        return TweedError(f"commit {version} of {self._log} {how} than when it was written ({reasons})")


class _Again(HubServer):
    """A hub that was: the log has what it found out."""

    def _ask(self, question: Question) -> None:
        self._trusted.questions += batches(question)


class NoLinks:
    """`MemberLinks` of a hub that was: the log has what came over them, and nobody hears what it says."""

    most_bytes = numel = 0
    over = False

    keys: Mapping[int, str] = {}
    refused: Mapping[str, int] = {}

    def __init__(self) -> None:
        self._state: Mapping[str, Any] = {}

    def worker(self, member: int) -> int:
        """Nobody asks: a log says it."""
        return member

    def next(self, until: float) -> Sequence[News]:
        """No news, as the log has it all."""
        return ()

    def tell(self, member: int, message: FromHub, model: Tensor | None) -> None:
        """Sends nothing, as nobody hears it."""

    def flush(self) -> None:
        """Waits for nothing, as nothing is sent."""

    def end(self, end: End, model: Tensor) -> None:
        """Tells nobody, as nobody hears it."""

    def close(self) -> None:
        """Does nothing, as there are no links."""

    def state(self) -> dict[str, Any]:
        """As it was when the process began."""
        return dict(self._state)

    def load(self, state: Mapping[str, Any]) -> None:
        self._state = state
