"""Exchange of gradients in the order of how much they have changed, over real timers, with a server rank.

An iteration, message by message. Each worker sends one: three values, and its gradient unless it is silent.
The server sends each worker three: that it has received enough; how long the sum is; the sum. Both sides keep
the gradient that each worker has sent last. What decides is in `tweed.cadence.ordered` and `server_policy`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor

from tweed.cadence import ContributionReceived, Decision, Ordered, Ready, ServerStopped, StepDone, Timer
from tweed.compress import LazyAggregation, Spec
from tweed.errors import DataError, NonFinite
from tweed.exchange.bucket import GradientBucket
from tweed.exchange.checkpoint import filled, plain
from tweed.exchange.communicator import Communicator
from tweed.exchange.gradient_form import GradientForm
from tweed.exchange.gradients import GradientReducer
from tweed.exchange.p2p import PeerMessages

#: How much one message counts in the server's estimate of how late they come.
_NEW = 0.2


class _Kind(IntEnum):
    """What a worker's message is."""

    SILENT = 0
    TIMER_EXPIRED = 1
    ABOVE_LEVEL = 2
    BROKEN = 3  # its gradient is not finite


class OrderedGradients(GradientReducer):
    """A `GradientReducer` of single messages: who has changed least may be spared, and counts with its last
    gradient.

    Gradients of all kinds of floats are sent as float32.

    Args:
      buckets: of this rank.
      comm: a group with a server.
      cadence: the strategy's.
      server: the server's rank.
      memory: the strategy's, for what is sent; None: gradients as they are.

    Attributes:
      sent, withheld: how many of this rank's iterations were of which kind; at the server those of all
        workers.
    """

    def __init__(
        self,
        buckets: list[GradientBucket],
        comm: Communicator,
        cadence: Ordered,
        server: int,
        memory: LazyAggregation | None,
    ) -> None:
        super().__init__(buckets)
        self.must_step = True
        self.prescale = 1 / comm.owners.contributors
        messages = PeerMessages(comm.group, comm.wait)
        self._side: _Server | _Worker
        spec = Spec(tuple(tuple(view.shape) for one in buckets for view in one.bucket.views))
        workers = [rank for rank in range(comm.size) if rank != server]
        forms = [GradientForm(memory, spec, place) for place in range(len(workers))]
        self._side = (
            _Server(cadence, messages, workers, spec.numel, forms)
            if not comm.owners.contributes
            else _Worker(cadence, messages, server, len(workers), spec.numel, forms[comm.owners.contributor])
        )
        self._broken: int | None = None

    def finish(self) -> list[Sequence[bool]]:
        flats = [gradients.bucket.flat for gradients in self.buckets]
        mean, self._broken = self._side.iterate(torch.cat([flat.float() for flat in flats]))
        for flat, part in zip(flats, torch.split(mean, [flat.numel() for flat in flats]), strict=True):
            flat.copy_(part)
        return [
            [] if gradients.full else [bool(view.any()) for view in gradients.bucket.views]
            for gradients in self.buckets
        ]

    @property
    def sent(self) -> int:
        """How many iterations of this rank sent a gradient; at the server, how many of all workers did."""
        return self._side.sent

    @property
    def withheld(self) -> int:
        """How many iterations of this rank sent no gradient; at the server, how many of all workers did
        not."""
        return self._side.withheld

    def check_finite(self) -> None:
        """Raises NonFinite if a worker's gradient was not finite in the last exchange."""
        broken, self._broken = self._broken, None
        if broken is not None:
            raise NonFinite(
                f"NaN or infinity in the gradient of rank {broken}. No gradient was used; what ranks have "
                "sent last is kept. Find its cause on that rank"
            )

    def after_step(self, norm: float | None) -> None:
        self._side.after_step(norm)

    def state(self) -> dict[str, Any]:
        return self._side.state()

    def load(self, state: Mapping[str, Any]) -> None:
        self._side.load(state)


class _Worker:
    """Has gradients, and waits for its turn to send one."""

    def __init__(
        self, cadence: Ordered, messages: PeerMessages, server: int, size: int, numel: int, form: GradientForm
    ) -> None:
        self._cadence, self._messages, self._server, self._size = cadence, messages, server, size
        self._form, self._step = form, 0
        self._state = cadence.start()
        self._last = torch.zeros(numel)
        self._mean = torch.empty(numel)
        self._stop, self._closing = torch.empty(2, dtype=torch.float64), torch.empty(2, dtype=torch.float64)
        self._total = 0.0
        self.sent = self.withheld = 0

    def iterate(self, gradient: Tensor) -> tuple[Tensor, int | None]:
        """Sends `gradient`, or that it is silent. Returns the mean of all, and a rank whose gradient is not
        finite."""
        started = self._cadence.iteration_started(self._total, self._size)
        self._state = self._cadence.handle(started, self._state, time.monotonic())
        self._messages.expect("stop", self._stop, self._server)
        kind, stopped = self._turn(gradient)
        sends = kind in (_Kind.TIMER_EXPIRED, _Kind.ABOVE_LEVEL)
        data = self._form.encode(gradient, self._last, self._step) if sends else torch.empty(0)
        head = torch.tensor([kind, self._norm, data.numel()], dtype=torch.float64)
        self._messages.send(head, self._server)
        if sends:
            self._messages.send(data, self._server)
        self.sent, self.withheld = self.sent + sends, self.withheld + (not sends)
        self._step += 1
        return self._close(stopped)

    def _turn(self, gradient: Tensor) -> tuple[_Kind, bool]:
        """Waits for this rank's turn, or the server's stop. Returns what to send, and whether the stop has
        come."""
        self._norm = float(torch.linalg.vector_norm(gradient - self._last, dtype=torch.float64))
        if not math.isfinite(self._norm):
            return _Kind.BROKEN, False
        stopped = False
        self._handle(Ready(self._norm))
        while True:
            decision, self._state = self._cadence.poll(self._state, time.monotonic())
            if decision.exchange:
                return _KINDS.get(decision, _Kind.SILENT), stopped
            if self._messages.next(self._cadence.due(self._state)) == "stop":
                stopped = True
                self._handle(ServerStopped(float(self._stop[0])))

    def _handle(self, event: Ready | ServerStopped) -> None:
        self._state = self._cadence.handle(event, self._state, time.monotonic())

    def _close(self, stopped: bool) -> tuple[Tensor, int | None]:
        if not stopped:
            self._messages.next(math.inf)
        self._messages.expect("closing", self._closing, self._server)
        self._messages.next(math.inf)
        self._messages.expect("mean", self._mean, self._server)
        self._messages.next(math.inf)
        self._messages.flush()
        self._total, broken = self._closing.tolist()
        return self._mean, None if broken < 0 else int(broken)

    def after_step(self, norm: float | None) -> None:
        """Is for the server."""

    def state(self) -> dict[str, Any]:
        form = plain(self._form.state)
        return {"last": self._last.clone(), "total": self._total, "step": self._step, "form": form}

    def load(self, state: Mapping[str, Any]) -> None:
        self._last.copy_(state["last"])
        self._total, self._step = state["total"], state["step"]
        self._form.state = filled(self._form.state, state["form"])


_KINDS = {Decision.TIMER_EXPIRED: _Kind.TIMER_EXPIRED, Decision.ABOVE_LEVEL: _Kind.ABOVE_LEVEL}


class _Server:
    """Receives from workers until it has enough, and sums."""

    def __init__(
        self,
        cadence: Ordered,
        messages: PeerMessages,
        workers: list[int],
        numel: int,
        forms: Sequence[GradientForm],
    ) -> None:
        self._forms, self._step = forms, 0
        self._cadence, self._policy, self._messages, self._workers = (
            cadence,
            cadence.policy,
            messages,
            workers,
        )
        self._state = self._policy.start()
        self._held = torch.zeros(len(workers), numel)
        self._sum = torch.zeros(numel)
        self._heads = torch.empty(len(workers), 3, dtype=torch.float64)
        self._incoming: dict[int, Tensor] = {}
        self._broken: int | None = None
        self._late_s = self._started_at = 0.0
        self.sent = self.withheld = 0

    def iterate(self, gradient: Tensor) -> tuple[Tensor, int | None]:
        """Receives from all. Returns the mean of what workers have sent last, and a rank whose gradient is
        not finite."""
        started = self._cadence.iteration_started(self._state.total, len(self._workers))
        self._started_at = time.monotonic()
        self._state = self._policy.handle(started, self._state, self._started_at + self._late_s)
        self._broken = None
        for place, rank in enumerate(self._workers):
            self._messages.expect(("head", place), self._heads[place], rank)
        self._receive_all()
        self._step += 1
        return self._close()

    def _receive_all(self) -> None:
        size, stopped = len(self._workers), False
        while True:
            now = time.monotonic()
            if not stopped and self._policy.poll(self._state, size, now).stop:
                stopped = True
                self._send_all(torch.tensor([self._level(), 0.0], dtype=torch.float64))
            if self._state.ended == size:
                return
            came = self._messages.next(math.inf if stopped else self._policy.due(self._state, size))
            if isinstance(came, tuple):
                self._receive(*came)

    def _level(self) -> float:
        return math.inf if self._broken is not None else self._policy.level(self._state, len(self._workers))

    def _receive(self, what: str, place: int) -> None:
        kind, norm, numbytes = self._heads[place].tolist()
        if what == "head" and kind in (_Kind.TIMER_EXPIRED, _Kind.ABOVE_LEVEL):
            if not 0 <= numbytes <= self._forms[place].most_bytes:
                raise DataError(f"rank {self._workers[place]} would send a gradient of {numbytes} bytes")
            self._incoming[place] = torch.empty(int(numbytes), dtype=torch.uint8)
            self._messages.expect(("gradient", place), self._incoming[place], self._workers[place])
            self._learn(int(kind), norm)
            return
        if kind == _Kind.BROKEN:
            self._broken = self._workers[place]
        sent = what == "gradient"
        if sent:
            before = self._held[place].clone()
            self._forms[place].decode(self._incoming.pop(place), self._held[place], self._step)
            self._sum += self._held[place] - before
        self.sent, self.withheld = self.sent + sent, self.withheld + (not sent)
        self._note_arrival(norm if sent else None)

    def _note_arrival(self, norm: float | None) -> None:
        total = float(torch.linalg.vector_norm(self._sum, dtype=torch.float64))
        self._state = self._policy.handle(ContributionReceived(norm, total), self._state, time.monotonic())

    def _learn(self, kind: int, norm: float) -> None:
        """How late messages come after their timers: computing, the way here, clocks."""
        if kind == _Kind.TIMER_EXPIRED:
            expires = Timer(self._state.pace, self._state.shift).expires(norm)
            late_s = time.monotonic() - self._started_at - expires
            self._late_s += _NEW * (late_s - self._late_s)

    def _close(self) -> tuple[Tensor, int | None]:
        """Sums in the order of ranks, so that the result does not depend on who came first."""
        self._sum = self._held[0].clone()
        for gradient in self._held[1:]:
            self._sum += gradient
        mean = self._sum if self._broken is None else torch.full_like(self._sum, math.nan)
        broken = -1 if self._broken is None else self._broken
        self._send_all(torch.tensor([self._state.total, broken], dtype=torch.float64))
        self._send_all(mean)
        self._messages.flush()
        return mean, self._broken

    def _send_all(self, tensor: Tensor) -> None:
        for rank in self._workers:
            self._messages.send(tensor, rank)

    def after_step(self, norm: float | None) -> None:
        self._state = self._policy.handle(StepDone(norm), self._state, time.monotonic())

    def state(self) -> dict[str, Any]:
        moved = list(self._state.moved)
        return {"held": self._held.clone(), "total": self._state.total, "moved": moved, "step": self._step}

    def load(self, state: Mapping[str, Any]) -> None:
        self._held.copy_(state["held"])
        self._step = state["step"]
        self._state = replace(self._policy.start(), total=state["total"], moved=tuple(state["moved"]))
