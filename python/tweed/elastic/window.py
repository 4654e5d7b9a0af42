"""How many bytes may be on their way to a joiner before they are acknowledged: as the round trip is. Pure.

So many cross in one round trip, so a link with a long one needs more of them; and what a link cannot take
stands in its queue, before what members say to each other. The window is twice what was delivered within
the shortest round trip, which had no queue: it doubles with each one until the link is full, and the queue
then is as long as one round trip. Where that is short a few chunks are enough. If the link was busy from the
begin the shortest round trip has that in it, until the link is idle for once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tweed.elastic.messages import CHUNK_BYTES

LEAST = 4 * CHUNK_BYTES
#: A thread has to hand these to the link at once, and the joiner to take them.
MOST = 1 << 23
_GAIN = 2.0


@dataclass
class Window:
    """See the module. All bytes are counted from the begin.

    Attributes:
      bytes: that may be on their way.
      round_trip_s: the shortest so far; None: none is known.

    Example:
      >>> window = Window()
      >>> window.sent(LEAST, acknowledged=0, now=0.0)
      >>> window.acknowledge(LEAST, now=0.1)
      >>> window.bytes == 2 * LEAST
      True
    """

    bytes: int = LEAST
    round_trip_s: float | None = None
    _flying: deque[tuple[int, int, float]] = field(default_factory=deque)

    def sent(self, sent: int, acknowledged: int, now: float) -> None:
        """So many were sent up to the end of a chunk that is sent now, and so many acknowledged before it."""
        self._flying.append((sent, acknowledged, now))

    def acknowledge(self, acknowledged: int, now: float) -> None:
        """So many are acknowledged now."""
        while self._flying and self._flying[0][0] <= acknowledged:
            _, before, since = self._flying.popleft()
            took_s = max(now - since, 1e-6)
            self.round_trip_s = min(self.round_trip_s or took_s, took_s)
            within = (acknowledged - before) / took_s * self.round_trip_s
            self.bytes = round(min(max(LEAST, _GAIN * within), MOST))
