"""One step of each rank, for the report: what it computed, encoded and waited for, and what was under way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from tweed.metrics import timeline
from tweed.metrics.timeline import Recording, Span

#: Steps before the first that counts, from which on is recorded: an exchange may be under way for so long.
_EARLIER = 8


@dataclass(frozen=True, slots=True)
class StepTimeline:
    """A step of one rank.

    Attributes:
      step: its number, from 1 on.
      seconds: from its beginning to its end.
      spans: what it encoded and waited for, and what was under way, in seconds since its beginning. It
        computed where it neither encoded nor waited.
    """

    step: int
    seconds: float
    spans: list[Span]


class StepRecorder:
    """Keeps the first step from `first` on in which this rank waited for others.

    Attributes:
      found: that step; None before it.
    """

    def __init__(self, first: int) -> None:
        self._first = first
        self._recording: Recording | None = None
        self.found: StepTimeline | None = None

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """What happens within is the step with this number."""
        if self.found is not None or number < self._first - _EARLIER:
            yield
            return
        self._recording = self._recording or timeline.record()
        began = time.monotonic()
        try:
            yield
        except BaseException:
            self._stop()
            raise
        ended = time.monotonic()
        spans = [one for one in self._recording.take(ended) if one.ended_s > began]
        if number >= self._first and any(one.what == "wait" for one in spans):
            self._stop()
            moved = [
                replace(one, began_s=max(0.0, one.began_s - began), ended_s=one.ended_s - began)
                for one in spans
            ]
            self.found = StepTimeline(number, ended - began, moved)

    def _stop(self) -> None:
        self._recording = None
        timeline.stop()

    def plain(self) -> dict[str, Any] | None:
        """The step as plain values; None if there was none. Nothing is recorded any more."""
        self._stop()
        return None if self.found is None else asdict(self.found)
