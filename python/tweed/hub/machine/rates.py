"""What links of members and the hub carry: measured, from what arrives when."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tweed.hub.machine.grouping import Candidate

#: Who has less than this of its fair share of a link is slowed down by its own.
_ITS_SHARE = 0.7
#: Who has this much more than when it was seen to be slow is no longer.
_FASTER = 1.25
#: An aggregator has at least this of what the best member has.
_TO_SPARE = 0.5
#: What was found of a link once counts for so much of it at the next look.
_KEPT = 0.95
#: Transfers that are looked back at.
_WINDOW = 64


@dataclass(slots=True)
class SharedLink:
    """A link that transfers share, each of which is taken to have moved at an even rate.

    Attributes:
      rate: bytes per second, when it was busiest; what is long ago counts less.
    """

    rate: float = 0.0
    _past: deque[tuple[float, float, float]] = field(default_factory=lambda: deque(maxlen=_WINDOW))

    def arrived(self, numbytes: float, since: float, now: float, others: Sequence[float]) -> float:
        """A transfer has arrived that began at `since`. Returns its fair share of the link in that time, in
        bytes per second: a link that is shared max-min fair gives at least this to whoever can take it.

        Args:
          others: since when those come that have not arrived yet.
        """
        seconds = now - since
        overlaps = [(max(begin, since), min(end, now), rate) for begin, end, rate in self._past]
        overlaps = [one for one in overlaps if one[0] < one[1]]
        self._past.append((since, now, numbytes / seconds))
        total = numbytes + sum((end - begin) * rate for begin, end, rate in overlaps)
        self.rate = max(total / seconds, _KEPT * self.rate)
        changes = [(begin, 1) for begin, _, _ in overlaps] + [(end, -1) for _, end, _ in overlaps]
        changes += [(max(other, since), 1) for other in others if other < now]
        at, sharing, share = since, 1, 0.0
        for change, step in [*sorted(changes), (now, 0)]:
            share += (change - at) / sharing
            at, sharing = change, sharing + step
        return self.rate * share / seconds


@dataclass(slots=True)
class Rates:
    """Estimates, in bytes per second, of links that have been used.

    A transfer below its fair share of the link of the hub, or of an aggregator, shows what the member's link
    has. One that has its share shows only that the member's has as much: until it is seen to be slow, and
    again when it is seen to be faster, it counts as if it could fill the hub's. Of a member that was never
    measured nothing is known, and it is no candidate.

    Attributes:
      hub, hub_up: its link down, and that up.
      up, down: of members that were seen to be slow.
    """

    hub: SharedLink = field(default_factory=SharedLink)
    hub_up: SharedLink = field(default_factory=SharedLink)
    up: dict[int, float] = field(default_factory=dict)
    down: dict[int, float] = field(default_factory=dict)
    _seen: set[int] = field(default_factory=set)

    def at_hub(self, member: int, numbytes: int, since: float, now: float, others: Sequence[float]) -> None:
        """A transfer of `member` has come to the hub. Args: as of `SharedLink.arrived`."""
        if now > since and numbytes > 0:
            self._seen.add(member)
            self._judge(
                self.up, member, numbytes / (now - since), self.hub.arrived(numbytes, since, now, others)
            )

    def gathered(self, aggregator: int, parts: Sequence[tuple[int, int, float]]) -> None:
        """Payloads have come to an aggregator: members, bytes, and after how many seconds each was there."""
        link = SharedLink()
        parts = sorted((part for part in parts if part[0] != aggregator), key=lambda part: part[2])
        for place, (_, numbytes, seconds) in enumerate(parts):
            link.arrived(numbytes, 0.0, seconds, [0.0] * (len(parts) - 1 - place))
        for member, numbytes, seconds in parts:
            self._judge(self.up, member, numbytes / seconds, link.rate / len(parts))

    def received(self, member: int, numbytes: int, since: float, end: float, others: Sequence[float]) -> None:
        """The model has come to `member`. Args: as of `SharedLink.arrived`, of the hub's link up."""
        if end > since and numbytes > 0:
            share = self.hub_up.arrived(numbytes, since, end, others)
            self._judge(self.down, member, numbytes / (end - since), share)

    def up_rate(self, member: int) -> float:
        """The rate of the link up of `member`, as far as it is known."""
        return self.up.get(member, self.hub.rate)

    def way(self, member: int) -> float:
        """The rate of the way from `member` to the hub; 1 before anything was measured."""
        return min(self.up_rate(member), self.hub.rate) or 1.0

    def down_rate(self, member: int) -> float:
        """The rate of the link down of `member`, as far as it is known."""
        return self.down.get(member, self.hub.rate)

    def candidates(self, members: Iterable[int], most: int) -> list[Candidate]:
        """Up to `most` members with bandwidth to spare, the best first; only those that were measured."""
        known = {one: min(self.up_rate(one), self.down_rate(one)) for one in self._seen}
        least = _TO_SPARE * max(known.values(), default=0.0)
        fit = [one for one in members if known.get(one, -1.0) >= least]
        fit.sort(key=lambda one: (-known[one], one))
        return [Candidate(one, self.up_rate(one), self.down_rate(one)) for one in fit[: max(0, most)]]

    def _judge(self, slow: dict[int, float], member: int, rate: float, share: float) -> None:
        if rate < _ITS_SHARE * share:
            slow[member] = rate
        elif rate > _FASTER * slow.get(member, math.inf):
            del slow[member]
