"""The pilot of `compress="auto"`: measures exchanges, lets rank 0 decide, and tells all."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from tweed.attach.parcels import Parcels
from tweed.attach.wire import Wire
from tweed.compress import Auto, Memory, Placed
from tweed.compress.trial import Lap, Phase, Reason, Record, Trial

_LOG = logging.getLogger("tweed")
_REASONS = list(Reason)


class Pilot:
    """Knows the present way. All ranks count exchanges alike; at the end of a phase rank 0's word is sent.

    Args:
      trial: the rules.
      names: of the ways, for people.
      wire: the group; its statistics get what the choice brings.
    """

    def __init__(self, trial: Trial, names: Sequence[str], wire: Wire) -> None:
        self._trial, self._names, self._wire = trial, names, wire
        self._record: Record = trial.start()
        self._laps: list[Lap] = []
        self._open = False
        self._began, self._waited, self._ready = 0.0, 0.0, 0.0

    @property
    def way(self) -> int:
        """What the next exchange goes by."""
        return self._record.phase.way

    def begin(self) -> None:
        """An exchange begins: the first gradient is there."""
        self._open = True
        self._began = self._ready = time.monotonic()
        self._waited = self._wire.stats.waiting_s

    def ready(self) -> None:
        """All is there that is to be exchanged."""
        self._ready = time.monotonic()

    @contextmanager
    def timed(self, like: Tensor) -> Iterator[None]:
        """An exchange from its beginning to its end, unless one has begun before."""
        if self._open:
            yield
            return
        self.begin()
        yield
        self.end(like)

    def end(self, like: Tensor) -> None:
        """The exchange is done. `like` is on the device that the group works with."""
        self._open = False
        seconds = time.monotonic() - self._began
        waited = self._wire.stats.waiting_s - self._waited
        self._laps.append(Lap(seconds, waited, self._ready - self._began))
        if len(self._laps) == self._record.phase.exchanges:
            self._decide(like)

    def _decide(self, like: Tensor) -> None:
        before, laps, self._laps = self._record.phase, self._laps, []
        told = torch.zeros(5, dtype=torch.float64, device=like.device)
        if self._wire.rank == 0:
            self._record = self._trial.next(self._record, laps)
            told = told.new_tensor(self._words())
        self._wire.wait(self._wire.sum(told))
        way, exchanges, reason, times, break_even = told.tolist()
        phase = Phase(int(way), int(exchanges), _REASONS[int(reason)])
        if self._wire.rank != 0:
            self._record = Record(phase)
        if phase.reason is not Reason.TRIED:
            self._show(before, phase, times, break_even)

    def _words(self) -> list[float]:
        phase, gain = self._record.phase, self._trial.gain(self._record)
        brings = (1.0, 0.0) if gain is None else (gain.times, gain.break_even_bits)
        return [phase.way, phase.exchanges, _REASONS.index(phase.reason), *brings]

    def _show(self, before: Phase, phase: Phase, times: float, break_even: float) -> None:
        stats, name = self._wire.stats, self._names[phase.way]
        stats.chosen, stats.gain, stats.break_even_bits = name, times, break_even
        if self._wire.rank == 0 and before.reason is Reason.TRIED:
            _LOG.warning('compress="auto" takes %s: %s', name, phase.reason.value)


class AutoParcels(Parcels):
    """`Parcels` that go by the pilot's way.

    Attributes:
      pilot: see `Pilot`. It times exchanges here, unless `begin` was called before.
    """

    def __init__(self, memory: Auto, buffers: Sequence[Sequence[Tensor]], wire: Wire) -> None:
        super().__init__(memory, buffers, wire)
        names = [repr(way) for way in memory.ways]
        self.pilot = Pilot(memory.trial(self._specs, wire.size), names, wire)

    def exchange(self, values: Sequence[Tensor], *, silent: bool = False) -> list[Placed]:
        """See `Parcels`."""
        for luggage in self._luggage:
            luggage.state.way = self.pilot.way
        with self.pilot.timed(values[0]):
            return super().exchange(values, silent=silent)


def make_parcels(memory: Memory[Any], buffers: Sequence[Sequence[Tensor]], wire: Wire) -> Parcels:
    """The parcels that `memory` goes in; for arguments see `Parcels`."""
    if isinstance(memory, Auto):
        return AutoParcels(memory, buffers, wire)
    return Parcels(memory, buffers, wire)
