"""Flows through one link that they share, as a fluid: the rates of TCP in the long run, without packets."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Flow:
    left: float  # bytes
    most: float  # bytes per second, of its own link
    rate: float = 0.0


@dataclass(slots=True)
class SharedLink:
    """A link of `rate` bytes per second; each flow has a link of its own in front of it.

    Flows get equal shares; what a slower one cannot use is shared by the others (max-min fair).

    Cost: each start and end goes over all flows.
    """

    rate: float
    _flows: dict[Hashable, _Flow] = field(default_factory=dict)
    _now: float = 0.0

    def start(self, key: Hashable, numbytes: float, most: float, now: float) -> None:
        """A flow of so many bytes begins, whose own link has `most` bytes per second."""
        self._advance(now)
        self._flows[key] = _Flow(float(numbytes), most)
        self._share()

    def stop(self, key: Hashable, now: float) -> None:
        """It ends, done or not; one that is not there is none."""
        self._advance(now)
        self._flows.pop(key, None)
        self._share()

    def set_rate(self, rate: float, now: float) -> None:
        """The link has another rate from now on."""
        self._advance(now)
        self.rate = rate
        self._share()

    def next_end(self) -> tuple[float, Hashable | None]:
        """When the next flow will have ended, and which; infinite and None: none will."""
        ends = [(self._now + one.left / one.rate, key) for key, one in self._flows.items() if one.rate > 0]
        return min(ends, key=lambda end: end[0], default=(math.inf, None))

    def _advance(self, now: float) -> None:
        for one in self._flows.values():
            one.left = max(0.0, one.left - one.rate * (now - self._now))
        self._now = now

    def _share(self) -> None:
        rest, flows = self.rate, sorted(self._flows.values(), key=lambda one: one.most)
        for place, one in enumerate(flows):
            one.rate = min(one.most, rest / (len(flows) - place))
            rest -= one.rate
