"""Size of pieces and window of `Credit`, found while training goes on."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field

from tweed.errors import UsageError
from tweed.order.base import Setting

#: 1 M and 4 M values in float32, as in ByteScheduler's code.
FIRST = Setting(4_000_000, 16_000_000)


@dataclass(slots=True)
class Trials:
    """A state.

    Attributes:
      setting: that of the steps to come.
      steps_s: of the setting, so far.
      measured_s: a step's median time by setting, of those that were tried.
    """

    setting: Setting
    steps_s: list[float] = field(default_factory=list)
    measured_s: dict[Setting, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreditTuner:
    """Tries the settings beside the best one, until none of them is better.

    Beside a setting are those with pieces, or a window, of twice or half the size. When steps at the best
    setting take another time than they did, by more than `change`, the link has changed, and all are tried
    anew from there.

    Args:
      first: where it begins.
      least_bytes, most_bytes: the bounds of both sizes; a window has room for one piece at least.
      steps: of each trial.
      change: a ratio of times, less one.

    Raises: UsageError for bounds that the first setting does not keep, or a trial of no steps.
    Source: own design; ByteScheduler (SOSP 2019, section 4.3) tunes the same two sizes by Bayesian
      optimisation, which is a library for what a walk over powers of two finds here.

    Example:
      >>> tuner = CreditTuner(steps=1)
      >>> state = tuner.start()
      >>> for _ in range(100):  # a link that likes small pieces, and all windows equally
      ...     state = tuner.handle(float(state.setting.piece_bytes), state)
      >>> state.setting.piece_bytes
      62500
    """

    first: Setting = FIRST
    least_bytes: int = 50_000
    most_bytes: int = 256_000_000
    steps: int = 5
    change: float = 0.2

    def __post_init__(self) -> None:
        if self.steps < 1 or not self._allowed(self.first):
            raise UsageError(f"{self!r}: a trial takes a step at least, and `first` keeps the bounds")

    def _allowed(self, one: Setting) -> bool:
        return self.least_bytes <= one.piece_bytes <= one.window_bytes <= self.most_bytes

    def start(self) -> Trials:
        return Trials(self.first)

    def handle(self, seconds: float, state: Trials) -> Trials:
        """A step at `state.setting` took so long; the next one takes the setting that is there then."""
        state.steps_s.append(seconds)
        if len(state.steps_s) == self.steps:
            took_s = statistics.median(state.steps_s)
            before_s = state.measured_s.get(state.setting, took_s)
            if abs(took_s / before_s - 1) > self.change:
                state.measured_s.clear()
            state.measured_s[state.setting] = took_s
            state.setting = self._next(state.measured_s)
            state.steps_s.clear()
        return state

    def _next(self, measured_s: dict[Setting, float]) -> Setting:
        """A neighbour of the best one that was not tried; else the best one."""
        best = min(measured_s, key=lambda one: (measured_s[one], one))
        return next((one for one in self._beside(best) if one not in measured_s), best)

    def _beside(self, one: Setting) -> Iterator[Setting]:
        piece, window = one
        beside = (
            Setting(piece // 2, window),
            Setting(2 * piece, window),
            Setting(piece, window // 2),
            Setting(piece, 2 * window),
        )
        return filter(self._allowed, beside)
