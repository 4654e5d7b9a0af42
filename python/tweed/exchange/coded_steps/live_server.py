"""The server's side, live: receives from all workers until the step is over, and sends the mean."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tweed.errors import DataError
from tweed.exchange.coded_steps import header
from tweed.exchange.coded_steps.header import Header, Kind, Over
from tweed.exchange.coded_steps.server import Broken, CodedStepServer, Contribution, Heard, Update
from tweed.exchange.communicator import Communicator
from tweed.exchange.gradient_form import GradientForm
from tweed.exchange.p2p import PeerMessages


class Server:
    """See above. Of each worker the next message is waited for, but for those that have heard of all steps
    while nothing new is wanted.

    Args:
      machine: what decides.
      comm: the group.
      workers: their ranks.
      numel: of a gradient.
      forms: per worker, of gradients of blocks that are sent alone.
    """

    def __init__(
        self,
        machine: CodedStepServer,
        comm: Communicator,
        workers: Sequence[int],
        numel: int,
        forms: Sequence[GradientForm],
    ) -> None:
        self._machine, self._stats, self._workers = machine, comm.stats, workers
        self._messages = PeerMessages(comm.group, comm.wait)
        self._numel, self._forms = numel, forms
        self._heads = [torch.empty(header.WORKER, dtype=torch.float64) for _ in workers]
        self._quiet = set(range(len(workers)))  # of whom nothing is waited for
        self._coming: dict[int, tuple[Header, Tensor]] = {}
        self._places = max(len(own) for work in machine.works for own in work.messages)  # draws of a step

    @property
    def late(self) -> int:
        return self._machine.late

    def tasks(self) -> Iterator[Any]:
        """None: a server has no data."""
        return iter(())

    def done(self, gradient: Tensor) -> None:
        """Nothing: it has no tasks."""

    def iterate(self) -> tuple[Tensor | None, int]:
        """Receives until the step is over. Returns the mean, or the worker whose gradient is not finite."""
        for place in sorted(self._quiet):
            self._expect(place)
        self._quiet.clear()
        while (update := self._machine.poll()) is None:
            self._receive(flushing=False)
        mean = None if update.broken is not None else self._mean(update)
        broken = -1 if update.broken is None else update.broken
        self._stats.bytes_answered += 0 if mean is None else mean.nbytes
        head = Over(update.step, update.choice, broken).packed()
        for rank in self._workers:
            self._messages.send(head, rank)
            if mean is not None:
                self._messages.send(mean, rank)
        return mean, broken

    def _mean(self, update: Update) -> Tensor:
        """Adds up in the order of terms, so that the result does not depend on who came first."""
        total: Tensor | None = None
        for value, weights in update.terms:
            for part, weight in zip(value.view(len(weights), -1), weights, strict=True):
                if total is None:
                    total = part * weight
                else:
                    total.add_(part, alpha=weight)
        assert total is not None  # something is always needed
        return total.div_(update.divisor).float()

    def flush(self) -> None:
        """Receives what is still on its way of steps that are over."""
        while len(self._quiet) < len(self._workers):
            self._receive(flushing=True)
        self._messages.flush()

    def _expect(self, place: int) -> None:
        self._messages.expect(("head", place), self._heads[place], self._workers[place])

    def _receive(self, flushing: bool) -> None:
        came = self._messages.next(math.inf)
        assert isinstance(came, tuple)  # that is how they are named
        what, place = came
        if what == "value":
            head, data = self._coming.pop(place)
            self._count(place, head, data)
        else:
            head = Header.of(self._heads[place])
            if head.kind is Kind.MESSAGE:
                self._expect_value(place, head)
                return
            event = Heard(place, head.step, head.tally) if head.kind is Kind.HEARD else None
            self._machine.handle(event or Broken(place, head.step))
        if flushing and head.kind is Kind.HEARD and head.step == self._machine.step - 1:
            self._quiet.add(place)
        else:
            self._expect(place)

    def _expect_value(self, place: int, head: Header) -> None:
        if head.numbytes > max(2 * self._numel * 8, self._forms[place].most_bytes):
            rank = self._workers[place]
            raise DataError(f"rank {rank} would send a gradient of {head.numbytes} bytes")
        data = torch.empty(head.numbytes, dtype=torch.uint8)
        self._coming[place] = head, data
        self._messages.expect(("value", place), data, self._workers[place])

    def _count(self, place: int, head: Header, data: Tensor) -> None:
        """What is of the open step is decoded; of an older one it only counts as late."""
        value = self._value(place, head, data) if head.step == self._machine.step else None
        self._machine.handle(Contribution(place, head.step, head.place, value))

    def _value(self, place: int, head: Header, data: Tensor) -> Tensor:
        work = self._machine.work
        if work.plain:
            value = torch.zeros(self._numel)
            self._forms[place].decode(data, value, head.step * self._places + head.place)
            return value
        if data.numel() != work.parts * self._numel * 8:
            raise DataError(f"rank {self._workers[place]} sent {data.numel()} bytes of a coded gradient")
        return data.view(torch.float64)

    def state(self) -> dict[str, Any]:
        """The step and the choice, for a checkpoint."""
        return {"step": self._machine.step, "choice": self._machine.choice.now}

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state`."""
        self._machine.restart(state["step"], state["choice"])
