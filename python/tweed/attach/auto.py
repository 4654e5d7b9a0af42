"""Exchange of gradients under `compress="auto"`: packed, or plain while the backward pass still runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.nn import Parameter

from tweed.attach.gradient import GradientExchange, Load
from tweed.attach.packed import PackedGradientExchange
from tweed.attach.pilot import AutoParcels


class AutoGradientExchange(PackedGradientExchange):
    """As the quickest way asks for: buckets go packed, or as they are while the backward pass still runs.

    When compression is turned off, what is still owed goes with one more packed exchange, whole. Only for
    cadences under which no rank is ever silent.

    Args: as for `PackedGradientExchange`; the memory is an `Auto`.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        assert isinstance(self._parcels, AutoParcels)  # the memory is `Auto`
        self._pilot = self._parcels.pilot
        self._plain = False
        self._owing = False  # may a memory have something that was not said?

    def _load(self, params: list[Parameter]) -> Load:
        return GradientExchange._load(self, params)

    def _is_open(self) -> bool:
        before = self._open
        now = super()._is_open()
        if now and not before:
            self._begin()
        return now

    def _begin(self) -> None:
        self._pilot.begin()
        self._plain = self._pilot.way == 0 and not self._owing
        self._factor = self._wire.factor * (1 if self._plain else self._wire.size)

    def _start(self, load: Load) -> None:
        if self._plain:
            GradientExchange._start(self, load)

    def exchange(self) -> None:
        """See `GradientExchange`."""
        if not self._open:
            self._begin()
        super().exchange()

    def _take_all(self) -> None:
        self._pilot.ready()
        if self._plain:
            GradientExchange._take_all(self)
        else:
            self._owing = self._pilot.way != 0
            super()._take_all()
        self._pilot.end(self._loads[0].bucket.flat)

    def load(self, state: Mapping[str, Any]) -> None:
        """See `PackedGradientExchange`. Ways are tried anew."""
        super().load(state)
        self._owing = True
