"""Predicted times: of every candidate at every size, as far as it can matter; and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tweed._core import Topology
from tweed.collective import bounds
from tweed.collective.chooser import Choice, Reason, Timed, label, quickest
from tweed.collective.planning.candidates import Candidate
from tweed.collective.planning.predict import USUAL, Host, predicted

ALIKE = 0.02
"""Predictions are no better than this: of so alike times, the earlier builder of the table is picked."""

_HOPELESS = 2.0
"""A candidate whose links or ranks alone take so many times as long as the best is not simulated."""


@dataclass(frozen=True, slots=True)
class Time:
    """Seconds that a candidate is predicted to take; `exact` False: it takes at least as long."""

    seconds: float
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was picked for a size, and why.

    Attributes:
      numbytes: the whole buffer.
      choice: the builder.
      seconds: what it is predicted to take.
      bound_s: what no schedule can beat.
      limit: what keeps all of them from being quicker, in words.
      busy: the share of the time for which its busiest link is busy.
      next: the builder that comes second, and its seconds; None if no other was simulated.
    """

    numbytes: int
    choice: Choice
    seconds: float
    bound_s: float
    limit: str
    busy: float
    next: Timed | None

    @property
    def reason(self) -> str:
        """Why this one, in a line; "a link is busy 80%" is of the time, and its busiest link."""
        what = "bytes" if self.busy >= 0.5 else "steps and latency"
        ahead = ""
        if self.next is not None:
            percent = 100 * (self.next.seconds / self.seconds - 1)
            ahead = f"; next: {label(self.next.builder, self.next.pieces)}, "
            ahead += f"{percent:.0f}% slower" if percent > 100 * ALIKE else "alike"
        return f"{what} decide, a link is busy {100 * self.busy:.0f}%{ahead}"


@dataclass
class Table:
    """Candidates for one collective on one network, and their times by size.

    Attributes:
      collective: such as `all_reduce`.
      topology: the network.
      candidates: in the order of the builders' table; of equally quick ones the first is picked.
      refused: builders that have no schedule for the network, and why.
      host: what ranks take their own time for.
      times: by size in bytes, one entry per candidate.
    """

    collective: str
    topology: Topology
    candidates: Sequence[Candidate]
    refused: Mapping[str, str] = field(default_factory=dict)
    host: Host = USUAL
    times: dict[int, list[Time]] = field(default_factory=dict)

    def predict(self, numbytes: int, only: Iterable[int] | None = None) -> None:
        """Adds a column: the candidates' times at a size; if `only` some are asked for, others' floors."""
        tried = set(range(len(self.candidates)) if only is None else only)
        column = [Time(self._floor(one, numbytes), exact=False) for one in self.candidates]
        best = float("inf")
        for place in sorted(tried, key=lambda place: (column[place].seconds, place)):
            if column[place].seconds <= _HOPELESS * best:
                column[place] = self._time(place, numbytes)
                best = min(best, column[place].seconds)
        self.times[numbytes] = column

    def choose(self, numbytes: int) -> Choice:
        """The quickest at a size that was predicted."""
        timed, ranks = self._timed(numbytes), self.topology.ranks
        return quickest(self.collective, numbytes, ranks, timed, Reason.PREDICTED, ALIKE)

    def verdict(self, numbytes: int) -> Verdict:
        """What is picked at a size that was predicted, why, and how far from the bound it is."""
        choice = self.choose(numbytes)
        key = choice.builder, choice.pieces
        place = next(at for at, one in enumerate(self.candidates) if (one.builder, one.pieces) == key)
        seconds = self.times[numbytes][place].seconds
        limit = bounds.of(self.collective, self.topology).limit(numbytes)
        others = [one for one in self._timed(numbytes) if (one.builder, one.pieces) != key]
        busy = self.candidates[place].floor * numbytes / seconds
        second = min(others, key=lambda one: one.seconds, default=None)
        return Verdict(numbytes, choice, seconds, limit.seconds(numbytes), limit.why, busy, second)

    def front(self) -> list[int]:
        """The places of the candidates that none beats in both latency and bandwidth, quickest start first.

        Latency is the time at the smallest size, bandwidth that at the largest. One that was not simulated
        at an end is now, if it may be on the front.
        """
        small, large = min(self.times), max(self.times)
        while True:
            front = self._undominated(small, large)
            unknown = [
                (at, size) for at in front for size in (small, large) if not self.times[size][at].exact
            ]
            if not unknown:
                return front
            for at, size in unknown:
                self.times[size][at] = self._time(at, size)

    def _undominated(self, small: int, large: int) -> list[int]:
        ends = [
            (self.times[small][at].seconds, self.times[large][at].seconds)
            for at in range(len(self.candidates))
        ]
        front: list[int] = []
        for at in sorted(range(len(ends)), key=lambda at: (*ends[at], at)):
            if not front or ends[at][1] < ends[front[-1]][1]:
                front.append(at)
        return front

    def _floor(self, one: Candidate, numbytes: int) -> float:
        """Seconds that its busiest link, and its ranks on average, are busy."""
        messages = 2 * len(one.schedule) / self.topology.ranks
        return max(one.floor * numbytes, messages * self.host.message_s)

    def _time(self, place: int, numbytes: int) -> Time:
        return Time(predicted(self.candidates[place].schedule, numbytes, self.topology, self.host))

    def _timed(self, numbytes: int) -> list[Timed]:
        return [
            Timed(time.seconds, one.builder, one.pieces)
            for one, time in zip(self.candidates, self.times[numbytes], strict=True)
            if time.exact
        ]
