"""Who was granted something, and sends nothing: what it holds is wanted by others.

How long is too long is said by what has come before: twice as long as the slowest of the last payloads took
from its grant on. Until one has come nobody is judged. Who is found silent is hung up on, and so gives back
what it was granted; it offers that again when it comes back. Then it has until the end of its lease, or a
link on which packets are lost for long would never bring anything.

Nothing here has a link or a clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

#: So many payloads are looked back at.
_WINDOW = 64
_TIMES = 2.0
#: Nobody is silent sooner, in seconds: by then TCP has said a lost packet again four times.
_LEAST_S = 5.0


@dataclass(slots=True)
class Silence:
    """See above. Times are in seconds.

    Whoever listens looks twice, one such time apart, how much has come of each member that may send: of whom
    nothing has come in between, it hangs up on. A look that is late says nothing, as nobody has listened.
    """

    _granted: dict[int, float] = field(default_factory=dict)  # since when
    _come: dict[int, int | None] = field(default_factory=dict)  # bytes, at the last look
    _took: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    _spared: set[int] = field(default_factory=set)
    _look_s: float = math.inf

    @property
    def while_s(self) -> float:
        """So long nobody is silent for nothing; infinite: that is not known yet."""
        return max(_LEAST_S, _TIMES * max(self._took)) if self._took else math.inf

    def granted(self, member: int, now: float) -> None:
        """Notes that a member may send from now on."""
        self._granted[member] = now
        if member not in self._spared:
            soon = now + self.while_s
            self._look_s = min(self._look_s, soon) if self._come else soon
            self._come[member] = None

    def arrived(self, member: int, now: float) -> None:
        """Its payload has come."""
        if (since := self._granted.get(member)) is not None:
            self._took.append(now - since)
            self._look_s = min(self._look_s, now + self.while_s)
        self._spared.discard(member)
        self.over(member)

    def over(self, member: int) -> None:
        """It may not send any more, or its link has ended."""
        self._granted.pop(member, None)
        self._come.pop(member, None)

    def deadline(self) -> float:
        """When to look; infinite: nobody may send."""
        return self._look_s if self._come else math.inf

    def look(self, now: float, come: Callable[[int], int]) -> list[int]:
        """Who is silent. To be called at the deadline; before that nobody is.

        Args:
          come: of a member, how many bytes of its message have come so far.
        """
        if now < self.deadline():
            return []
        late = now > self._look_s + self.while_s
        self._look_s = now + self.while_s
        before, self._come = self._come, {member: come(member) for member in self._come}
        found = [] if late else [one for one, numbytes in self._come.items() if numbytes == before[one]]
        self._spared.update(found)
        return found
