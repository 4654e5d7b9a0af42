"""When a task is late: learned from tasks that are done, and from what earlier speculation was good for.

    usual      the median of how long the last 64 counted tasks ran; nobody is late before the first one
    delay      by how many usual times more a copy is late: twice as many after a speculative copy that was
               slower than the first one, half as many after one that was quicker
    late       a copy that has run for usual * (1 + delay)

The delay is learned as the cadence `ByShards` learns how long to wait before speculative work.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import median

#: What the delay comes to at least and at most, in usual times.
LEAST, MOST = 0.5, 8.0
#: An unneeded copy may run on for this many usual times and at least this many seconds: a new process costs
#: some 20 ms, and what is nearly done saves it.
_GRACE_TIMES, _LEAST_GRACE_S = 2.0, 0.25
#: The first speculative copy of a task is given up after so many times as long as makes a copy late.
_HOPELESS_TIMES, _LEAST_HOPELESS_S = 10.0, 2.0
_RECENT = 64


@dataclass(slots=True)
class Lateness:
    """How long a copy of a task may run before it is late.

    Args:
      speculation_delay: the first delay, in usual times. 0 stays 0: every second task is late.
    """

    speculation_delay: float = 1.0
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    _usual_s: float | None = None

    @property
    def usual_s(self) -> float:
        """Seconds that a task usually takes; infinite before one is done."""
        if self._usual_s is None:
            self._usual_s = median(self._recent) if self._recent else math.inf
        return self._usual_s

    @property
    def late_after_s(self) -> float:
        """Seconds after which a copy is late."""
        return self.usual_s * (1 + self.speculation_delay)

    @property
    def hopeless_after_s(self) -> float:
        """Seconds after which the first speculative copy of a task is given up."""
        return max(_HOPELESS_TIMES * self.late_after_s, _LEAST_HOPELESS_S)

    @property
    def grace_s(self) -> float:
        """Seconds that a copy which nobody needs any more may run on."""
        return max(_GRACE_TIMES * self.usual_s, _LEAST_GRACE_S)

    def ran(self, seconds: float) -> None:
        """A copy that counts ran for this long."""
        self._recent.append(seconds)
        self._usual_s = None

    def speculated(self, *, useful: bool) -> None:
        """A task that had a speculative copy is counted; `useful` says whether it is by that one."""
        if useful:
            self.speculation_delay = max(self.speculation_delay / 2, min(LEAST, self.speculation_delay))
        else:
            self.speculation_delay = min(2 * self.speculation_delay, max(MOST, self.speculation_delay))
