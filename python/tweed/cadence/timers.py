"""Timers that make the most important message the earliest, and silence a piece of knowledge."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timer:
    """What is of this `norm` is sent `pace / (norm + shift)` seconds after the iteration began: longer is
    earlier.

    So when `elapsed` seconds have gone by, nothing longer than `pace / elapsed - shift` is still to come.

    Args:
      pace: seconds times norm, above 0.
      shift: a norm, 0 or more. 0 is the timer of ordered transmissions, which has no end; with another one
        all has been sent after `pace / shift` seconds.

    Source: Chen, Blum, Sadler, "Ordered gradient approach for communication-efficient distributed learning",
      SPAWC 2020; ordered transmissions: Blum, Sadler, "Energy efficient signal detection in sensor networks
      using ordered transmissions", 2008. The shift is ours.
    """

    pace: float
    shift: float = 0.0

    def expires(self, norm: float) -> float:
        """Seconds after which something of this `norm` is sent; infinite for nothing without a shift."""
        shifted = norm + self.shift
        return self.pace / shifted if shifted > 0 else math.inf

    def level(self, elapsed: float) -> float:
        """The longest that can still be to come after `elapsed` seconds."""
        return max(0.0, self.pace / elapsed - self.shift) if elapsed > 0 else math.inf


def within(window_s: float, scale: float) -> Timer:
    """The timer by which all has been sent after `window_s` seconds, and what is of norm `scale` after half
    of them."""
    scale = max(scale, 1e-30)
    return Timer(window_s * scale, scale)
