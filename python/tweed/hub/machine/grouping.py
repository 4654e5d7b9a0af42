"""Which contributions go to the hub by themselves, and which are added up at aggregators on the way.

The order of transfers is kept, and cut into groups. While the first group crosses the hub's link, each other
one is gathered at an aggregator of its own; one sum of each follows:

    hub's link       | direct group          | sum 1 | sum 2 |
    aggregator 1     | gathers group 1     | sends 1 |
    aggregator 2     | gathers group 2             | sends 2 |

A group is as large as it can be and still be ready when the hub's link becomes free. All sizes of the direct
group are tried, and the grouping that is estimated to end first is taken. To send all directly is one of
them, so what is taken is never estimated to be slower than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pending:
    """What a member has to send; `up_rate` is that of its link, in bytes per second."""

    member: int
    numbytes: int
    up_rate: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A member that may be an aggregator, and what its link has to spare, in bytes per second."""

    member: int
    up_rate: float
    down_rate: float


@dataclass(frozen=True, slots=True)
class Group:
    """The members from `begin` to before `end` are added up at `aggregator`; None: they go directly."""

    aggregator: int | None
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Grouping:
    """Groups in the order of transfers.

    Attributes:
      seconds: until all is at the hub, as estimated.
      hub_bytes: that cross its link.
    """

    groups: tuple[Group, ...]
    seconds: float
    hub_bytes: float


def quickest_grouping(
    pending: Sequence[Pending], candidates: Sequence[Candidate], hub_rate: float, sum_bytes: int = 0
) -> Grouping:
    """The grouping that is estimated to end first; of two alike, that with more direct ones.

    Args:
      pending: in the order of the stage `order`.
      candidates: the best first; each gets one group at most.
      hub_rate: of the hub's link, in bytes per second.
      sum_bytes: of a sum; 0: as many as its largest part.

    Cost: for n transfers and at least one candidate n^2 / 2 additions.
    Source: MLfabric (arXiv 1907.00434, 2019), stage 2, from memory: contiguous groups, the first one direct,
      all of its sizes tried. How long things take is worked out here.
    """
    estimate = _Estimate(pending, hub_rate, sum_bytes)
    best = estimate.from_direct(len(pending), ())
    for direct in range(len(pending) - 2, 0, -1) if candidates else ():
        found = estimate.from_direct(direct, candidates)
        if found.seconds < best.seconds:
            best = found
    return best


def model_sources(count: int, candidates: Sequence[Candidate], hub_rate: float) -> int:
    """How many of the candidates get the model from the hub, and hand it to the rest of `count` members: as
    many as make the last model come soonest; 0: all get it from the hub.

    Args:
      hub_rate: of the hub's link up, in bytes per second.
    """
    best, most = count / hub_rate, 0
    for some in range(1, min(count, len(candidates) + 1)):
        each = -(-(count - some) // some)
        seconds = some / hub_rate + max(each / one.up_rate for one in candidates[:some])
        if seconds < best:
            best, most = seconds, some
    return most


class _Estimate:
    """How long groupings take, with sums over transfers taken once."""

    def __init__(self, pending: Sequence[Pending], hub_rate: float, sum_bytes: int) -> None:
        self.pending, self.hub_rate, self.sum_bytes = pending, hub_rate, sum_bytes
        self.alone_s = [one.numbytes / one.up_rate for one in pending]
        self.direct = [(0.0, 0.0)]  # bytes and the longest of the first so many
        for one, seconds in zip(pending, self.alone_s, strict=True):
            numbytes, longest = self.direct[-1]
            self.direct.append((numbytes + one.numbytes, max(longest, seconds)))

    def from_direct(self, direct: int, candidates: Sequence[Candidate]) -> Grouping:
        """With so many direct ones, and the others at candidates; the last of these takes the rest."""
        numbytes, longest = self.direct[direct]
        free_s = max(numbytes / self.hub_rate, longest)
        groups, begin, count = [Group(None, 0, direct)], direct, len(self.pending)
        for place, one in enumerate(candidates):
            if count - begin < 2:
                break
            end, ready_s, largest = self._gathered(begin, one, free_s, place == len(candidates) - 1)
            groups.append(Group(one.member, begin, end))
            free_s = max(free_s, ready_s) + largest / min(one.up_rate, self.hub_rate)
            numbytes += largest
            begin = end
        if begin < count:  # one alone gains nothing from an aggregator
            rest = sum(one.numbytes for one in self.pending[begin:])
            groups.append(Group(None, begin, count))
            free_s = max(free_s + rest / self.hub_rate, *self.alone_s[begin:])
            numbytes += rest
        return Grouping(tuple(groups), free_s, numbytes)

    def _gathered(self, begin: int, one: Candidate, free_s: float, rest: bool) -> tuple[int, float, int]:
        """Where the group ends that is gathered in time, when it is ready, and the bytes of its sum."""
        numbytes, ready_s, largest, end = 0, 0.0, 0, begin
        for place in range(begin, len(self.pending)):
            sent = self.pending[place]
            own = sent.member == one.member
            after = numbytes + (0 if own else sent.numbytes)
            seconds = max(ready_s, after / one.down_rate, 0.0 if own else self.alone_s[place])
            if seconds > free_s and end - begin >= 2 and not rest:
                break
            numbytes, ready_s, largest, end = after, seconds, max(largest, sent.numbytes), place + 1
        return end, ready_s, self.sum_bytes or largest
