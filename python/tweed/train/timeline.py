"""One step of each rank, for the report: what it computed, encoded and waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from tweed.metrics import timeline
from tweed.metrics.timeline import Span


@dataclass(frozen=True, slots=True)
class StepTimeline:
    """A step of one rank.

    Attributes:
      step: its number, from 1 on.
      seconds: from its beginning to its end.
      spans: what it encoded and waited for, in seconds since its beginning; it computed in the rest.
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
        self.found: StepTimeline | None = None

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """What happens within is the step with this number."""
        if self.found is not None or number < self._first:
            yield
            return
        began = time.monotonic()
        with timeline.recorded() as spans:
            yield
        seconds = time.monotonic() - began
        if any(span.what == "wait" for span in spans):
            moved = [Span(one.what, one.began_s - began, one.ended_s - began, one.last) for one in spans]
            self.found = StepTimeline(number, seconds, moved)

    def plain(self) -> dict[str, Any] | None:
        """The step as plain values; None before it was found."""
        return None if self.found is None else asdict(self.found)
