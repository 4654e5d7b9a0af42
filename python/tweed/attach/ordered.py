"""Exchange of gradients in the order of how much they have changed, over real timers, with a server rank.

An iteration, message by message. Each worker sends one: two numbers, and its gradient if it speaks. The
server sends each worker three: that it has heard enough; how long the sum is; the sum. Both sides keep the
gradient that each worker has sent last. What decides is in `tweed.cadence.ordered` and `referee`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from tweed.attach.bucket import Bucket, room
from tweed.attach.gradient import GradientExchange, Load
from tweed.attach.mail import Mail
from tweed.attach.packed import show
from tweed.attach.wire import Wire
from tweed.cadence import Decision, Enough, Heard, Ordered, Ready, StepDone, Timer
from tweed.errors import NonFinite

#: How much one message counts in the server's estimate of how late they come.
_NEW = 0.2


class _Kind(IntEnum):
    """What a worker's message is."""

    SILENT = 0
    RANG = 1
    ASKED = 2
    BROKEN = 3  # its gradient is not finite


class OrderedGradientExchange(GradientExchange):
    """As `GradientExchange`, but by single messages: who has least news may be spared, and counts with its
    last gradient.

    Gradients of all kinds of floats go as float32.

    Args:
      params, wire, bucket_bytes: as there; the group has a server.
      cadence: the strategy's.
      server: the server's rank.

    Attributes:
      said, silent: how many of this rank's iterations were of which kind; at the server those of all workers.
    """

    def __init__(
        self, params: Mapping[str, Parameter], wire: Wire, bucket_bytes: int, cadence: Ordered, server: int
    ) -> None:
        super().__init__(params, wire, bucket_bytes, lambda: True)
        self._mail = Mail(wire.group, wire.wait)
        self._side: _Server | _Worker
        numel = sum(load.bucket.flat.numel() for load in self._loads)
        workers = [rank for rank in range(wire.size) if rank != server]
        self._side = (
            _Server(cadence, self._mail, workers, numel)
            if wire.serves
            else _Worker(cadence, self._mail, server, len(workers), numel)
        )
        self._broken: int | None = None

    def _load(self, params: list[Parameter]) -> Load:
        flat = torch.zeros(room(params), dtype=params[0].dtype, device=params[0].device)
        return Load(params, Bucket(flat, params))

    def _start(self, load: Load) -> None:
        """Nothing goes out before all gradients are there."""

    def _take_all(self) -> None:
        mine = torch.cat([load.bucket.flat.float() for load in self._loads])
        mean, self._broken = self._side.iterate(mine)
        at = 0
        for load in self._loads:
            flat = load.bucket.flat
            flat.copy_(mean[at : at + flat.numel()])
            at += flat.numel()
            show(load, [False] * len(load.params))

    def moved(self, norm: float | None) -> None:
        """The model has gone a step of length `norm`."""
        self._side.moved(norm)

    @property
    def said(self) -> int:
        """See the class."""
        return self._side.said

    @property
    def silent(self) -> int:
        """See the class."""
        return self._side.silent

    def check_finite(self) -> None:
        """Raises NonFinite if a worker's gradient was not finite in the last exchange."""
        broken, self._broken = self._broken, None
        if broken is not None:
            raise NonFinite(
                f"NaN or infinity in the gradient of rank {broken}. No gradient was used; what ranks have "
                "sent last is kept. Find its cause on that rank"
            )

    def state(self) -> dict[str, Any]:
        """For a checkpoint: plain values and tensors."""
        return self._side.state()

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from the `state` of another run."""
        self._side.load(state)


class _Worker:
    """Has gradients, and waits for its turn to send one."""

    def __init__(self, cadence: Ordered, mail: Mail, server: int, size: int, numel: int) -> None:
        self._cadence, self._mail, self._server, self._size = cadence, mail, server, size
        self._state = cadence.start()
        self._last = torch.zeros(numel)
        self._mean = torch.empty(numel)
        self._stop, self._closing = torch.empty(2, dtype=torch.float64), torch.empty(2, dtype=torch.float64)
        self._total = 0.0
        self.said = self.silent = 0

    def iterate(self, gradient: Tensor) -> tuple[Tensor, int | None]:
        """Sends `gradient`, or nothing. Returns the mean of all, and a rank where it is not finite."""
        opened = self._cadence.opened(self._total, self._size)
        self._state = self._cadence.handle(opened, self._state, time.monotonic())
        self._mail.expect("stop", self._stop, self._server)
        kind, stopped = self._turn(gradient)
        self._mail.send(torch.tensor([kind, self._norm], dtype=torch.float64), self._server)
        if kind in (_Kind.RANG, _Kind.ASKED):
            self._mail.send(gradient, self._server)
            self._last = gradient
            self.said += 1
        else:
            self.silent += 1
        return self._close(stopped)

    def _turn(self, gradient: Tensor) -> tuple[_Kind, bool]:
        """Waits for this rank's turn, or the server's stop. Returns what to send, and whether the stop has
        come."""
        self._norm = float(torch.linalg.vector_norm(gradient - self._last, dtype=torch.float64))
        if not math.isfinite(self._norm):
            return _Kind.BROKEN, False
        stopped = False
        self._tell(Ready(self._norm))
        while True:
            decision, self._state = self._cadence.poll(self._state, time.monotonic())
            if decision.exchange:
                return _KINDS.get(decision, _Kind.SILENT), stopped
            if self._mail.next(self._cadence.due(self._state)) == "stop":
                stopped = True
                self._tell(Enough(float(self._stop[0])))

    def _tell(self, event: Ready | Enough) -> None:
        self._state = self._cadence.handle(event, self._state, time.monotonic())

    def _close(self, stopped: bool) -> tuple[Tensor, int | None]:
        if not stopped:
            self._mail.next(math.inf)
        self._mail.expect("closing", self._closing, self._server)
        self._mail.next(math.inf)
        self._mail.expect("mean", self._mean, self._server)
        self._mail.next(math.inf)
        self._mail.settle()
        self._total, broken = self._closing.tolist()
        return self._mean, None if broken < 0 else int(broken)

    def moved(self, norm: float | None) -> None:
        """Is for the server."""

    def state(self) -> dict[str, Any]:
        return {"last": self._last.clone(), "total": self._total}

    def load(self, state: Mapping[str, Any]) -> None:
        self._last.copy_(state["last"])
        self._total = state["total"]


_KINDS = {Decision.RANG: _Kind.RANG, Decision.ASKED: _Kind.ASKED}


class _Server:
    """Hears workers until it has heard enough, and sums."""

    def __init__(self, cadence: Ordered, mail: Mail, workers: list[int], numel: int) -> None:
        self._cadence, self._referee, self._mail, self._workers = cadence, cadence.referee, mail, workers
        self._state = self._referee.start()
        self._held = torch.zeros(len(workers), numel)
        self._sum = torch.zeros(numel)
        self._heads = torch.empty(len(workers), 2, dtype=torch.float64)
        self._incoming: dict[int, Tensor] = {}
        self._broken: int | None = None
        self._late_s = self._opened_at = 0.0
        self.said = self.silent = 0

    def iterate(self, gradient: Tensor) -> tuple[Tensor, int | None]:
        """Hears all. Returns the mean of what workers have sent last, and a rank whose gradient is not
        finite."""
        opened = self._cadence.opened(self._state.total, len(self._workers))
        self._opened_at = time.monotonic()
        self._state = self._referee.handle(opened, self._state, self._opened_at + self._late_s)
        self._broken = None
        for place, rank in enumerate(self._workers):
            self._mail.expect(("head", place), self._heads[place], rank)
        self._hear_all()
        return self._close()

    def _hear_all(self) -> None:
        size, stopped = len(self._workers), False
        while True:
            now = time.monotonic()
            if not stopped and self._referee.poll(self._state, size, now).stop:
                stopped = True
                self._send_all(torch.tensor([self._level(), 0.0], dtype=torch.float64))
            if self._state.ended == size:
                return
            came = self._mail.next(math.inf if stopped else self._referee.due(self._state, size))
            if isinstance(came, tuple):
                self._hear(*came)

    def _level(self) -> float:
        return math.inf if self._broken is not None else self._referee.level(self._state, len(self._workers))

    def _hear(self, what: str, place: int) -> None:
        kind, norm = self._heads[place].tolist()
        if what == "head" and kind in (_Kind.RANG, _Kind.ASKED):
            self._incoming[place] = torch.empty(self._held.shape[1])
            self._mail.expect(("gradient", place), self._incoming[place], self._workers[place])
            self._learn(int(kind), norm)
            return
        if kind == _Kind.BROKEN:
            self._broken = self._workers[place]
        said = what == "gradient"
        if said:
            gradient = self._incoming.pop(place)
            self._sum += gradient - self._held[place]
            self._held[place] = gradient
        self.said, self.silent = self.said + said, self.silent + (not said)
        self._heard(norm if said else None)

    def _heard(self, norm: float | None) -> None:
        total = float(torch.linalg.vector_norm(self._sum, dtype=torch.float64))
        self._state = self._referee.handle(Heard(norm, total), self._state, time.monotonic())

    def _learn(self, kind: int, norm: float) -> None:
        """How late messages come after their timers: computing, the way here, clocks."""
        if kind == _Kind.RANG:
            rings = Timer(self._state.pace, self._state.shift).rings(norm)
            late_s = time.monotonic() - self._opened_at - rings
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
        self._mail.settle()
        return mean, self._broken

    def _send_all(self, tensor: Tensor) -> None:
        for rank in self._workers:
            self._mail.send(tensor, rank)

    def moved(self, norm: float | None) -> None:
        self._state = self._referee.handle(StepDone(norm), self._state, time.monotonic())

    def state(self) -> dict[str, Any]:
        return {"held": self._held.clone(), "total": self._state.total, "moved": list(self._state.moved)}

    def load(self, state: Mapping[str, Any]) -> None:
        self._held.copy_(state["held"])
        self._state = replace(self._referee.start(), total=state["total"], moved=tuple(state["moved"]))
