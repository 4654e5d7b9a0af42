"""All members of a hub: how far the task of each is, the leases on these, and what is sent to each.

Nothing here decides: `hub` does. How many tasks are under way, and how many members an update may have to
wait for, is counted as they move, so that an event costs no more with more members.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from tweed.hub.machine.actions import Action, Tell
from tweed.hub.machine.member import Member, Phase
from tweed.hub.wire.messages import FromHub

_UNDER_WAY = frozenset({Phase.OPEN, Phase.OFFERED, Phase.GRANTED})
#: What a lease is on that is no phase: a member that has said nothing yet.
EXPECTED = "expected"
#: When it ends, whose, of which task, and in which phase.
_Lease = tuple[float, int, int, str]


@dataclass(slots=True)
class Members:
    """See above. Times are in seconds.

    Attributes:
      by_number: those that ever came.
      out: what the hub wants done; `tell` adds to it.
      under_way: tasks that somebody computes, offers or sends.
      busy: tasks that are not over.
      present: members of which something may come.
    """

    by_number: dict[int, Member] = field(default_factory=dict)
    out: deque[Action] = field(default_factory=deque)
    under_way: int = 0
    busy: int = 0
    present: int = 0
    _leases: list[_Lease] = field(default_factory=list)

    def __getitem__(self, member: int) -> Member:
        return self.by_number[member]

    def known(self, member: int) -> Member:
        """What is known of `member`, who may be new."""
        return self.by_number.setdefault(member, Member())

    def tell(self, member: int, message: FromHub) -> None:
        """Who is not linked hears nothing."""
        if self.by_number[member].linked:
            self.out.append(Tell(member, message))

    def move(
        self,
        one: Member,
        phase: Phase | None = None,
        waits: bool | None = None,
        in_batch: bool | None = None,
        expected: bool | None = None,
        awaited: bool | None = None,
    ) -> None:
        """Changes what `one` is about, and with it how many are busy or present."""
        self.under_way -= one.phase in _UNDER_WAY
        self.busy -= one.phase is not Phase.DONE
        self.present -= one.present
        one.phase = one.phase if phase is None else phase
        one.waits = one.waits if waits is None else waits
        one.in_batch = one.in_batch if in_batch is None else in_batch
        one.expected = one.expected if expected is None else expected
        one.awaited = one.awaited if awaited is None else awaited
        self.under_way += one.phase in _UNDER_WAY
        self.busy += one.phase is not Phase.DONE
        self.present += one.present

    # Leases

    def expect(self, member: int, until: float) -> None:
        """Something will come of `member`, for which an update may have to wait until then."""
        one = self.known(member)
        self.move(one, expected=True)
        one.due_s = min(one.due_s, until)
        heapq.heappush(self._leases, (one.due_s, member, one.number, EXPECTED))

    def lease(self, member: int, until: float) -> None:
        """Its task may be in its phase until then; a longer lease takes the place of one before."""
        one = self.by_number[member]
        one.until = until
        heapq.heappush(self._leases, (until, member, one.number, one.phase.value))
        if len(self._leases) > 2 * self.busy + 64:  # most are of tasks that are over
            self._leases = [lease for lease in self._leases if self._holds(lease)]
            heapq.heapify(self._leases)

    def ended(self, now: float) -> Iterator[tuple[int, str]]:
        """Members whose lease has ended, and on which phase that was, one after the other."""
        while self._leases and (self._leases[0][0] <= now or not self._holds(self._leases[0])):
            lease = heapq.heappop(self._leases)
            if self._holds(lease):
                yield lease[1], lease[3]

    def next_end(self) -> float:
        """When a lease ends; infinite: never."""
        return self._leases[0][0] if self._leases else math.inf

    def wait_no_longer(self, one: Member, now: float) -> None:
        """For who had its time, until it contributes."""
        if one.due_s <= now:
            self.move(one, awaited=False)
            one.due_s = math.inf

    def _holds(self, lease: _Lease) -> bool:
        """Whether the task is still in the phase that the lease is on, and has no longer one."""
        until, member, number, phase = lease
        one = self.by_number[member]
        if phase == EXPECTED:
            return one.expected and one.due_s <= until
        return (one.number, one.phase.value) == (number, phase) and one.until <= until
