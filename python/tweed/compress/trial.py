"""Which of several ways to exchange takes least time: tried in turns, and tried anew when the link changes.

Pure: what exchanges took goes in, which way to take next and for how long comes out. Ways are tried from the
fewest bytes up. Two of them tell what a byte costs on this link, and from then on a way is left out if it
cannot be the quickest: so a slow link never has to carry everything once just to find out that it is slow.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, slots=True)
class Lap:
    """What one exchange took, in seconds.

    Attributes:
      seconds: from the first gradient that was there, or for movements from its beginning, to its end.
      waiting_s: of these, the training stood still for the network.
      ready_s: of these, those before all was there that was to be exchanged. 0 for movements.
    """

    seconds: float
    waiting_s: float
    ready_s: float = 0.0


class Reason(Enum):
    """Why a way is taken. The value is the text for people."""

    TRIED = "it is being tried"
    QUICKEST = "it is the quickest here"
    DOES_NOT_PAY = "compression does not pay here"
    CHANGED = "exchanges take another time than before: all ways are tried anew"


@dataclass(frozen=True, slots=True)
class Phase:
    """Take way `way` for `exchanges` exchanges."""

    way: int
    exchanges: int
    reason: Reason = Reason.TRIED


@dataclass(frozen=True, slots=True)
class Record:
    """What is known: the present phase, and by way the medians of its last phase."""

    phase: Phase
    seen: Mapping[int, Lap] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gain:
    """What the way that was chosen brings against exchanging everything.

    Attributes:
      times: seconds of an exchange of everything, over those of the way chosen.
      break_even_bits: bits per second of a link at which the two take equally long; above it everything is
        quicker. Infinite if compressing takes no time, 0 if nothing is saved.
      measured: whether everything was tried here; else its time follows from that of smaller packets.
    """

    times: float
    break_even_bits: float
    measured: bool


@dataclass(frozen=True, slots=True)
class Trial:
    """The rules.

    Args:
      wire_bytes: by way, what a rank sends in an exchange; way 0 exchanges everything, as it is, while the
        backward pass still runs. Estimates will do.
      tried: exchanges of a phase in which a way is tried; the first of them does not count.
      kept: exchanges of a phase in which the quickest way is taken.
      worth: a way with loss must take at most so much of the time of everything, else everything is taken.
      changed: trials begin anew when the quickest takes longer or shorter than it did by this factor.
    """

    wire_bytes: tuple[float, ...]
    tried: int = 4
    kept: int = 250
    worth: float = 0.95
    changed: float = 1.5

    def start(self) -> Record:
        """Before the first exchange: the way with the fewest bytes is tried."""
        return Record(Phase(self._order()[0], self.tried))

    def _order(self) -> list[int]:
        return sorted(range(len(self.wire_bytes)), key=lambda way: self.wire_bytes[way])

    def next(self, record: Record, laps: Sequence[Lap]) -> Record:
        """What to do after a phase whose exchanges took `laps`."""
        phase, middle = record.phase, _middle(laps[1:] or laps)
        if phase.reason is not Reason.TRIED and self._has_changed(record.seen[phase.way], middle):
            return Record(Phase(phase.way, self.tried, Reason.TRIED), {phase.way: middle})
        seen = dict(record.seen) | {phase.way: middle}
        for way in self._order():
            if way not in seen and self._least(way, seen) < self.worth * min(map(_seconds, seen.values())):
                return Record(Phase(way, self.tried), seen)
        return Record(self._settled(seen), seen)

    def _has_changed(self, before: Lap, now: Lap) -> bool:
        ratio = now.seconds / max(before.seconds, 1e-9)
        return not 1 / self.changed <= ratio <= self.changed

    def _settled(self, seen: Mapping[int, Lap]) -> Phase:
        quickest = min(seen, key=lambda way: seen[way].seconds)
        if 0 in seen and seen[quickest].seconds > self.worth * seen[0].seconds:
            return Phase(0, self.kept, Reason.DOES_NOT_PAY)
        return Phase(quickest, self.kept, Reason.QUICKEST)

    def _least(self, way: int, seen: Mapping[int, Lap]) -> float:
        """Seconds that `way` takes at the very least, by what others took; 0 where that cannot be told.

        A third is left for what the estimate does not know.
        """
        waiting_s = self._waiting(way, seen)
        if waiting_s is None:
            return 0.0
        ready_s = min(lap.ready_s for lap in seen.values())
        return max(ready_s, 0.67 * waiting_s) if way == 0 else ready_s + 0.67 * waiting_s

    def _waiting(self, way: int, seen: Mapping[int, Lap]) -> float | None:
        """Seconds that the bytes of `way` would take: the line through the smallest and the largest seen."""
        by_size = sorted(seen, key=lambda other: self.wire_bytes[other])
        low, high = by_size[0], by_size[-1]
        apart = self.wire_bytes[high] - self.wire_bytes[low]
        if apart <= 0:
            return None
        slope = max(0.0, (seen[high].waiting_s - seen[low].waiting_s) / apart)
        return seen[low].waiting_s + slope * (self.wire_bytes[way] - self.wire_bytes[low])

    def gain(self, record: Record) -> Gain | None:
        """What the present way brings; None while ways are tried."""
        way, seen = record.phase.way, record.seen
        if record.phase.reason is Reason.TRIED or way not in seen:
            return None
        whole_s = seen[0].seconds if 0 in seen else self._predicted(seen)
        return Gain(whole_s / max(seen[way].seconds, 1e-9), self._break_even(way, seen), 0 in seen)

    def _predicted(self, seen: Mapping[int, Lap]) -> float:
        waiting_s = self._waiting(0, seen) or 0.0
        return min(lap.ready_s for lap in seen.values()) + waiting_s

    def _break_even(self, way: int, seen: Mapping[int, Lap]) -> float:
        """Of the way chosen; where that is everything, of the best other."""
        others = [other for other in seen if other != 0]
        chosen = way or min(others, key=lambda other: seen[other].seconds, default=0)
        saved_bits = 8 * (self.wire_bytes[0] - self.wire_bytes[chosen])
        lap = seen[chosen]
        work_s = lap.seconds - lap.waiting_s - lap.ready_s
        return saved_bits / work_s if work_s > 0 else math.inf


def _seconds(lap: Lap) -> float:
    return lap.seconds


def _middle(laps: Sequence[Lap]) -> Lap:
    return Lap(
        statistics.median(lap.seconds for lap in laps),
        statistics.median(lap.waiting_s for lap in laps),
        statistics.median(lap.ready_s for lap in laps),
    )
