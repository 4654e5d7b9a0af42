"""A worker's side, live: sends what it has after each task, until it hears that the step is over.

Computing and sending take turns: a message has left before the next task begins, so that one at a time waits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tweed.cadence import ByShards
from tweed.data.coding import Work
from tweed.errors import DataError, UsageError
from tweed.exchange.coded_steps import header
from tweed.exchange.coded_steps.choice import Tally
from tweed.exchange.coded_steps.header import Header, Kind, Over
from tweed.exchange.coded_steps.worker import CodedStepWorker, Outgoing, State, renumbered
from tweed.exchange.communicator import Communicator
from tweed.exchange.gradient_form import GradientForm
from tweed.exchange.p2p import PeerMessages

#: A worker whose step was over before its tasks may be behind: so long it looks whether the next one is, too.
_LOOK_S = 0.002


class Worker:
    """See above.

    Args:
      works: that the server may choose from.
      comm: the group.
      server: its rank.
      numel: of a gradient.
      form: of gradients of blocks that are sent alone.
      cadence: the strategy's.
    """

    def __init__(
        self,
        works: Sequence[Work],
        comm: Communicator,
        server: int,
        numel: int,
        form: GradientForm,
        cadence: ByShards,
    ) -> None:
        self._works, self._stats, self._server = works, comm.stats, server
        self._messages = PeerMessages(comm.group, comm.wait)
        self._machine = CodedStepWorker(comm.owners.contributor, cadence.patience)
        self._form, self._cadence = form, cadence
        self._head, self._mean = torch.empty(header.SERVER, dtype=torch.float64), torch.empty(numel)
        self._places = max(len(own) for work in works for own in work.messages)
        self._step = self._choice = 0
        self._begun = False
        self._was_cut = False
        self._since = self._ended = 0.0  # of the last task
        self._tally = Tally()

    @property
    def late(self) -> int:
        return 0

    def tasks(self) -> Iterator[Any]:
        if self._begun:
            raise UsageError("run.shards() has begun in this step: call optimizer.step() before the next one")
        self._begun, self._tally = True, Tally()
        self._machine.begin(self._works[self._choice])
        self._messages.expect("over", self._head, self._server)
        self._listen(time.monotonic() + _LOOK_S if self._was_cut else -math.inf)
        while (task := self._machine.next()) is not None:
            self._since = time.monotonic()
            shards = self._works[0].shards
            yield (
                task if self._cadence.share == 1 else renumbered(task, shards, self._cadence.seed, self._step)
            )
            speculation_delay_s = self._machine.speculation_delay * (self._ended - self._since)
            self._listen(time.monotonic() + speculation_delay_s if self._machine.may_be_enough else -math.inf)

    def done(self, gradient: Tensor) -> None:
        self._ended = time.monotonic()
        self._listen(-math.inf)
        due = self._machine.done(gradient)
        for message in due:
            self._send(message)
        self._messages.flush()
        tally, sent = self._tally, len(due)
        self._tally = Tally(
            tally.tasks + 1,
            tally.computing_s + self._ended - self._since,
            tally.messages + sent,
            tally.sending_s + (time.monotonic() - self._ended if sent else 0.0),
        )

    def _listen(self, until: float) -> None:
        """Whether the step is over."""
        if self._machine.state is not State.OVER and self._messages.next(until) is not None:
            self._was_cut = self._machine.state is State.COMPUTING
            self._machine.over()

    def _send(self, message: Outgoing) -> None:
        if message.value is None:
            self._messages.send(Header(Kind.BROKEN, self._step).packed(), self._server)
            return
        if self._works[self._choice].plain:
            zeros, number = torch.zeros_like(message.value), self._step * self._places + message.place
            data = self._form.encode(message.value, zeros, number)
        else:
            data = message.value.view(-1).view(torch.uint8)
        self._stats.bytes_exchanged += data.numel()
        head = Header(Kind.MESSAGE, self._step, message.place, data.numel())
        self._messages.send(head.packed(), self._server)
        self._messages.send(data, self._server)

    def iterate(self) -> tuple[Tensor | None, int]:
        """Waits until the step is over. Returns the mean, or the worker whose gradient is not finite."""
        if not self._begun:
            raise UsageError(
                f"cadence={self._cadence!r} takes a step's gradients from run.shards(): compute them in "
                "`for shard in run.shards(): ...` before optimizer.step()"
            )
        self._listen(math.inf)
        over = Over.of(self._head)
        if over.step != self._step:
            raise DataError(f"the server ends step {over.step}, and this rank is at step {self._step}")
        if over.broken < 0:
            self._messages.expect("mean", self._mean, self._server)
            self._messages.next(math.inf)
        self._messages.send(Header(Kind.HEARD, self._step, tally=self._tally).packed(), self._server)
        self._messages.flush()
        self._begun = False
        self._step, self._choice = self._step + 1, over.choice
        return (self._mean if over.broken < 0 else None), over.broken

    def flush(self) -> None:
        """Nothing: all that this rank sends has left when a step is over."""

    def state(self) -> dict[str, Any]:
        """The step and the choice, for a checkpoint."""
        return {"step": self._step, "choice": self._choice}

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state`."""
        self._step, self._choice = state["step"], state["choice"]
