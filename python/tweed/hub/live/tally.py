"""What a live hub counts of its members, for its metrics. One thread counts; another may look meanwhile, and
finds what is a moment old."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tweed.hub.links.base import MemberLinks
from tweed.hub.live.contribution import Contribution
from tweed.hub.machine.hub import Hub
from tweed.hub.machine.member import Member, Phase
from tweed.hub.wire.messages import FromHub, Outcome, OutcomeReason
from tweed.metrics.hub_snapshot import HubCounts, HubMember

#: No more members are listed: those that have contributed last.
MOST = 256
_STATES = {
    Phase.OPEN: "computes",
    Phase.HELD: "offers",
    Phase.OFFERED: "offers",
    Phase.GRANTED: "sends",
    Phase.ARRIVED: "sent",
    Phase.DONE: "waits",
}


@dataclass(slots=True)
class Tally:
    """See above. Times are in seconds.

    Attributes:
      dropped: members whose contributions came to nothing between the last two commits, as they were too old
        to move.
    """

    dropped: tuple[int, ...] = ()

    _members: dict[int, HubMember] = field(default_factory=dict)
    _last_s: dict[int, float] = field(default_factory=dict)  # when a contribution of its was committed
    _late: list[int] = field(default_factory=list)  # since the last commit
    _outcomes: dict[int, int] = field(default_factory=dict)  # number of the last one that was sent

    def came(self, member: int, numbytes: int) -> None:
        """A payload of `member`."""
        self._of(member).bytes_in += numbytes

    def told(self, member: int, message: FromHub, numbytes: int) -> None:
        """What went to `member`, with a model of so many bytes. An outcome may be sent again."""
        one = self._of(member)
        one.bytes_out += numbytes
        if isinstance(message, Outcome) and message.number > self._outcomes.get(member, 0):
            self._outcomes[member] = message.number
            if message.why is OutcomeReason.LATE:
                one.late += 1
                self._late.append(member)

    def committed(self, contributions: Sequence[Contribution], now: float) -> None:
        """What became of contributions at a commit."""
        self.dropped, self._late = tuple(self._late), []
        for found in contributions:
            one = self._of(found.member)
            one.delay += found.delay
            one.longest_delay = max(one.longest_delay, found.delay)
            self._last_s[found.member] = now
            if found.weight == 0:
                one.rejected, one.reason, one.score = one.rejected + 1, found.reason, found.score
            else:
                one.counted, one.weight = one.counted + 1, one.weight + (found.weight or 0.0)

    def snapshot(self, hub: Hub, links: MemberLinks, now: float) -> HubCounts:
        """All counts as they are now, with the members of which something came last."""
        known, keys, counted = dict(list(hub.members.items())), links.keys, list(self._members.values())
        recent = sorted(known, key=lambda one: self._last_s.get(one, -math.inf), reverse=True)[:MOST]
        return HubCounts(
            hub.version,
            sum(one.linked for one in known.values()),
            len(keys) or len(known),
            sum(one.bytes_in for one in counted),
            sum(one.bytes_out for one in counted),
            tuple(self._row(member, hub, keys.get(member, ""), now) for member in sorted(recent)),
            links.refused,
        )

    def _row(self, member: int, hub: Hub, key: str, now: float) -> HubMember:
        last_s, rates = self._last_s.get(member), None if hub.aggregation is None else hub.aggregation.rates
        return replace(
            self._members.get(member, HubMember(member)),
            key=key,
            state=_state(hub.members[member]),
            quiet_s=None if last_s is None else max(0.0, now - last_s),
            up=None if rates is None else rates.up.get(member),
            down=None if rates is None else rates.down.get(member),
        )

    def _of(self, member: int) -> HubMember:
        if member not in self._members:
            self._members[member] = HubMember(member)
        return self._members[member]


def _state(one: Member) -> str:
    """What a member is about, in a word."""
    return _STATES[one.phase] if one.linked else "away"
