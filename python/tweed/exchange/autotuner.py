"""The live side of `compress="auto"`: measures exchanges; one rank chooses, and sends its choice to all."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from tweed.compress import Auto, Memory, Update
from tweed.compress.autotuner import Autotuner, Phase, Reason, Record, Timing
from tweed.exchange.communicator import Communicator
from tweed.exchange.compressed_buffers import CompressedBuffers
from tweed.exchange.pending import Pending

T = TypeVar("T")

_LOG = logging.getLogger("tweed")
_REASONS = list(Reason)


class AutotunerDriver:
    """Knows the present choice. All ranks count exchanges alike; at the end of a phase the first rank that
    contributes sends its choice.

    Args:
      autotuner: the rules.
      names: of the candidates, for people.
      comm: the group; its statistics get what the choice brings.
    """

    def __init__(self, autotuner: Autotuner, names: Sequence[str], comm: Communicator) -> None:
        self._autotuner, self._names, self._comm = autotuner, names, comm
        self._record: Record = autotuner.start()
        self._timings: list[Timing] = []
        self._open = False
        self._began, self._waited, self._ready = 0.0, 0.0, 0.0

    @property
    def choice(self) -> int:
        """The candidate of the next exchange, by number; 0: everything as it is."""
        return self._record.phase.choice

    def begin(self) -> None:
        """An exchange begins: the first gradient is there."""
        self._open = True
        self._began = self._ready = time.monotonic()
        self._waited = self._comm.stats.waiting_s

    def ready(self) -> None:
        """All is there that is to be exchanged."""
        self._ready = time.monotonic()

    def timed(self, exchange: Pending[T], like: Tensor) -> Pending[T]:
        """As `exchange`, which is measured unless one has begun before: how long it keeps the training, which
        goes on while it pauses."""
        if self._open:
            return (yield from exchange)
        self.begin()
        while True:
            try:
                next(exchange)
            except StopIteration as end:
                self.end(like)
                found: T = end.value
                return found
            paused, waited = time.monotonic(), self._comm.stats.waiting_s
            yield
            self._began += time.monotonic() - paused
            self._ready, self._waited = self._began, self._waited + self._comm.stats.waiting_s - waited

    def end(self, like: Tensor) -> None:
        """The exchange is done. `like` is on the device that the group works with."""
        self._open = False
        seconds = time.monotonic() - self._began
        waited = self._comm.stats.waiting_s - self._waited
        self._timings.append(Timing(seconds, waited, self._ready - self._began))
        if len(self._timings) == self._record.phase.exchanges:
            self._choose(like)

    def _choose(self, like: Tensor) -> None:
        before, timings, self._timings = self._record.phase, self._timings, []
        message = torch.zeros(5, dtype=torch.float64, device=like.device)
        chooses = self._comm.rank == self._comm.owners.first
        if chooses:
            self._record = self._autotuner.next(self._record, timings)
            message = message.new_tensor(self._message())
        # A sum in which only one rank is not zero: a broadcast that any backend has for this dtype.
        choice, exchanges, reason, times, break_even = self._comm.sum(message).tolist()
        phase = Phase(int(choice), int(exchanges), _REASONS[int(reason)])
        if not chooses:
            self._record = Record(phase)
        if phase.reason is not Reason.TRIED:
            self._show(before, phase, times, break_even)

    def _message(self) -> list[float]:
        phase, gain = self._record.phase, self._autotuner.gain(self._record)
        brings = (1.0, 0.0) if gain is None else (gain.times, gain.break_even_bits)
        return [phase.choice, phase.exchanges, _REASONS.index(phase.reason), *brings]

    def _show(self, before: Phase, phase: Phase, times: float, break_even: float) -> None:
        stats, name = self._comm.stats, self._names[phase.choice]
        stats.chosen, stats.gain, stats.break_even_bits = name, times, break_even
        if self._comm.rank == self._comm.owners.first and before.reason is Reason.TRIED:
            _LOG.warning('compress="auto" takes %s: %s', name, phase.reason.value)


class AutotunedBuffers(CompressedBuffers):
    """`CompressedBuffers` that take the autotuner's choice.

    Attributes:
      autotuner: see `AutotunerDriver`. It times exchanges here, unless `begin` was called before.
    """

    def __init__(
        self, memory: Auto, buffers: Sequence[Sequence[Tensor]], comm: Communicator, first_slot: int = 0
    ) -> None:
        super().__init__(memory, buffers, comm, first_slot)
        names = [repr(candidate) for candidate in memory.choices]
        self.autotuner = AutotunerDriver(memory.autotuner(self.specs, comm.owners.contributors), names, comm)

    def has_residual(self) -> bool:
        """Whether this rank has something that was not sent. Cost: a pass over it."""
        return any(bool(buffer.state.error.any()) for buffer in self.buffers)

    def exchange(self, values: Sequence[Tensor], *, silent: bool = False) -> Pending[list[Update]]:
        for buffer in self.buffers:
            buffer.state.choice = self.autotuner.choice
        exchange = super().exchange(values, silent=silent)
        return (yield from self.autotuner.timed(exchange, values[0]))


def make_buffers(
    memory: Memory[Any], buffers: Sequence[Sequence[Tensor]], comm: Communicator, first_slot: int = 0
) -> CompressedBuffers:
    """The buffers that `memory` goes in; for arguments see `CompressedBuffers`."""
    if isinstance(memory, Auto):
        return AutotunedBuffers(memory, buffers, comm, first_slot)
    return CompressedBuffers(memory, buffers, comm, first_slot)
