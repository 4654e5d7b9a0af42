"""What a planner tries: every builder that fits the network, with every number of pieces worth trying."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from tweed._core import Schedule, Topology
from tweed.collective.chooser import NETWORK, fitting, label, priced_patterns, refusals
from tweed.collective.table import build
from tweed.errors import TweedError, UsageError

ROOTLESS = ("all_reduce", "reduce_scatter", "all_gather")
"""Collectives for which every builder is tried. The others have a root, or parts of any size: their schedules
must work from every rank, so they are patterns, by number."""

_MANY = 1 << 40  # bytes, so that rounding to chunks does not show


MOST_SENDS = 65_000
"""A builder's further pieces are not tried if they make more sends: a run of them takes a second or more."""


@dataclass(frozen=True)
class Candidate:
    """A schedule for the network, and how it came about.

    Attributes:
      builder: its builder.
      pieces: into how many pieces its shares are cut; None: a pattern by number, which a plan can rotate.
      schedule: over the network's links.
      floor: seconds per byte of the buffer that its busiest link is busy: it cannot be quicker.
    """

    builder: str
    pieces: int | None
    schedule: Schedule
    floor: float

    def __str__(self) -> str:
        return label(self.builder, self.pieces)


def candidates(
    collective: str,
    topology: Topology,
    names: Collection[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[list[Candidate], dict[str, str]]:
    """Builds all that can be built.

    Args:
      collective: such as `all_reduce`.
      topology: a network that `topology.check` takes.
      names: builders to try; empty: all.
      progress: called with each builder before it begins.

    Returns:
      The candidates, in the order of the builders' table, and by name why other builders have none.

    Raises:
      UsageError: none has any.

    Cost: that of the builders: most take milliseconds for 64 ranks, some a minute (docs/plan.md).

    Example:
      >>> found, refused = candidates("all_reduce", topology.ring(4), ["ring", "hdrm"])
      >>> {one.builder for one in found}, list(refused)
      ({'ring'}, ['hdrm'])
    """
    refused = refusals(collective, topology) if collective in ROOTLESS else {}
    refused = {name: why for name, why in refused.items() if name in names or not names}
    found: list[Candidate] = []
    for builder, pieces in _worth(collective, topology):
        if names and builder not in names:
            continue
        if sends := _expected(found, builder, pieces):
            refused[label(builder, pieces)] = f"about {sends} sends, more than {MOST_SENDS} are not tried"
            continue
        progress(f"{collective}: building {label(builder, pieces)}")
        try:
            schedule = build(collective, builder, topology, pieces or 1)
        except TweedError as error:  # one builder that fails must not keep the others out
            refused[label(builder, pieces)] = str(error)
        else:
            found.append(Candidate(builder, pieces, schedule, _floor(schedule, topology)))
    if not found:
        reasons = (
            "; ".join(f"{name}: {why}" for name, why in refused.items()) or f"no such builder in {names}"
        )
        raise UsageError(f"no builder has a schedule for {collective} on {topology!r}: {reasons}")
    return found, refused


def _expected(found: Sequence[Candidate], builder: str, pieces: int | None) -> int:
    """About how many sends there would be, if they are too many, by what fewer pieces have made."""
    for one in found:
        if one.builder == builder and pieces and one.pieces:
            sends = len(one.schedule) * pieces // one.pieces
            return sends if sends > MOST_SENDS else 0
    return 0


def _worth(collective: str, topology: Topology) -> Iterator[tuple[str, int | None]]:
    """Builders and their pieces; of patterns those that keep within the fan-in, if there are any."""
    if collective in ROOTLESS:
        yield from ((row.name, pieces) for row in fitting(collective, topology) for pieces in row.pieces)
        return
    priced = list(priced_patterns(collective, topology.ranks))
    within = [row for row in priced if row[1].fan_in <= NETWORK.fan_in]
    yield from ((pattern.name, None) for pattern, _ in within or priced)


def _floor(schedule: Schedule, topology: Topology) -> float:
    cost = schedule.cost(_MANY)
    speeds = {(src, dst): bandwidth * count for src, dst, bandwidth, _, count in topology.links}
    busy = [numbytes / speeds[link] for link, numbytes in cost.links.items()]
    if topology.is_complete:  # what a rank sends at a time shares one port
        busy = [max(cost.sent + cost.received) / next(iter(speeds.values()))]
    return max(busy, default=0.0) / _MANY
