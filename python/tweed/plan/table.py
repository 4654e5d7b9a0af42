"""Predicted times: of every candidate at every size, as far as it can matter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tweed._core import Schedule, Topology
from tweed.collective.chooser import Choice, Reason, Timed, quickest, slicing
from tweed.plan.candidates import Candidate
from tweed.simulate import run

_MESSAGES = 200_000
"""Longer runs are not simulated: from so many messages on, time grows by the byte."""

_HOPELESS = 2.0
"""A candidate whose busiest link alone takes so many times as long as the best is not simulated."""


@dataclass(frozen=True)
class Time:
    """Seconds that a candidate is predicted to take; `exact` False: it takes at least as long."""

    seconds: float
    exact: bool = True

    def __str__(self) -> str:
        return f"{self.seconds:.3g} s" if self.exact else f"> {self.seconds:.3g} s"


@dataclass
class Table:
    """Candidates for one collective on one network, and their times by size.

    Attributes:
      collective: such as `all_reduce`.
      topology: the network.
      candidates: in the order of the builders' table; of equally quick ones the first is picked.
      times: by size in bytes, one entry per candidate.
    """

    collective: str
    topology: Topology
    candidates: Sequence[Candidate]
    times: dict[int, list[Time]] = field(default_factory=dict)

    def predict(self, numbytes: int, only: Iterable[int] | None = None) -> None:
        """Adds a column: the candidates' times at a size; if `only` some are asked for, others' floors."""
        tried = set(range(len(self.candidates)) if only is None else only)
        column = [Time(one.floor * numbytes, exact=False) for one in self.candidates]
        best = float("inf")
        for place in sorted(tried, key=lambda place: (column[place].seconds, place)):
            if column[place].seconds <= _HOPELESS * best:
                column[place] = Time(predicted(self.candidates[place].schedule, numbytes, self.topology))
                best = min(best, column[place].seconds)
        self.times[numbytes] = column

    def choose(self, numbytes: int) -> Choice:
        """The quickest at a size that was predicted."""
        timed = [
            Timed(time.seconds, one.builder, one.pieces)
            for one, time in zip(self.candidates, self.times[numbytes], strict=True)
            if time.exact
        ]
        return quickest(self.collective, numbytes, self.topology.ranks, timed, Reason.PREDICTED)


def predicted(schedule: Schedule, numbytes: int, topology: Topology) -> float:
    """Seconds that the engine is expected to take: the simulator, with the engine's slices.

    A buffer that makes more than `_MESSAGES` messages is not simulated whole: two shorter ones are, and the
    time is carried on from them in a straight line, as each further slice takes as long as the one before.

    Cost: at most half a second.
    """
    piece, window = slicing(schedule.chunks)
    slice_bytes = piece * schedule.chunks
    most = max(2 * window, _MESSAGES // max(len(schedule), 1)) * slice_bytes

    def simulated(size: int) -> float:
        seconds = run(schedule, size, topology, piece=piece, window=window).seconds
        assert seconds is not None  # nobody dies
        return seconds

    if numbytes <= most:
        return simulated(numbytes)
    half, whole = simulated(most // 2), simulated(most)
    return whole + (numbytes - most) * (whole - half) / (most - most // 2)
