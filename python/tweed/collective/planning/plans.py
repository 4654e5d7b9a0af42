"""A plan: which builder each collective uses at which size. Rank 0 makes it, everybody uses it.

`plan` here chooses by a formula, for ranks of whose network only the worst link is known; `planning.make`
by the simulator, for a network that is described. Both pick by `chooser.quickest` and give a `Plan`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

from tweed._core import Schedule, Topology
from tweed.collective import around
from tweed.collective.chooser import Choice, Links, choose, fitting
from tweed.collective.table import COLLECTIVES, build
from tweed.collective.topology.check import survivors
from tweed.collective.topology.text import from_plain, plain
from tweed.errors import TweedError, UsageError

_FORMAT = 2
_OPTIONAL = "in_flight_bytes", "piece_bytes"  # not in plans before 2026-11-27 and 2026-11-28
#: A piece takes a link so long, and an urgent one waits for the end of what has begun to leave.
_PIECE_S, _LEAST_PIECE_BYTES, _PIECE_BYTES = 3e-3, 8 << 10, 256 << 10
QUICK = ("multitree", "double_binary_tree", "ring")
"""Builders for networks that take what others leave when something is lost, in this order."""

_STAY = {*QUICK, "binomial_tree", "exchange", "star", "pairwise", "hierarchy"}
_SIZES = tuple(1 << bits for bits in range(8, 33))
"""Sizes that are compared, in bytes; a row ends at one of them, and the last row has no end."""


@dataclass(frozen=True, slots=True)
class Pick:
    """One row of a plan.

    Attributes:
      collective: such as `all_reduce`.
      up_to_bytes: the largest whole buffer it is for; None: all that no earlier row of its collective takes.
      builder: the builder's name.
      why: for people.
      digest: of the schedule; a rank that builds another one notices.
      pieces: into how many pieces the shares of a schedule that follows links are cut; None: it follows none.
      in_flight_bytes: so many of each chunk are under way at once, at most; None: as many as the engine lets.
      piece_bytes: into pieces of so many bytes at most chunks are cut; None: as many as the engine lets.
    """

    collective: str
    up_to_bytes: int | None
    builder: str
    why: str
    digest: str
    pieces: int | None = None
    in_flight_bytes: int | None = None
    piece_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Frozen picks for a number of ranks. All ranks of a group must hold the same one.

    Attributes:
      ranks: the number of ranks it is for.
      picks: rows; those of one collective are together, by rising size.
      topology: the network it is for; None: one of which no more than the worst link is known.

    Example:
      >>> made = plan(4, ONE_HOST)
      >>> Plan.from_json(made.to_json()) == made
      True
    """

    ranks: int
    picks: tuple[Pick, ...]
    topology: Topology | None = None

    def rows(self) -> list[tuple[str, int | None, Schedule, int | None, int | None]]:
        """The rows as the engine takes them: collective, largest size, schedule, bytes under way, and of a
        piece.

        Raises:
          UsageError: a builder is missing here, or makes something else than where the plan was made.

        Cost: builds and checks each schedule once in a process.
        """
        return [
            (one.collective, one.up_to_bytes, self._schedule(one), one.in_flight_bytes, one.piece_bytes)
            for one in self.picks
        ]

    def pick(self, collective: str, numbytes: int) -> Pick:
        """The row for a size: the first of its collective that is large enough."""
        for pick in self.picks:
            if pick.collective == collective and (pick.up_to_bytes is None or numbytes <= pick.up_to_bytes):
                return pick
        raise UsageError(f"the plan has no row for '{collective}'; it has {', '.join(COLLECTIVES)}")

    def without(self, ranks: Collection[int] = (), links: Collection[tuple[int, int]] = ()) -> Plan:
        """A plan for what is left when ranks or links are lost: proven anew, and there in milliseconds.

        Ranks close up. Sizes stay as they were; so does each builder, if it builds quickly and has a schedule
        for what is left. In place of others comes the first of `QUICK` that has one. The quickest schedules
        for what is left are found by `tweed.collective.planning.make(plan.topology)`, which takes longer.

        Args:
          ranks: those that are gone.
          links: directed, as (from, to); both directions of what is broken in both.

        Raises:
          UsageError: what is left is in pieces, or less than two ranks; or what is lost was not there.

        Cost: 64 ranks: docs/plan.md.
        """
        known = set() if self.topology is None else {link[:2] for link in self.topology.links}
        for what in (set(ranks) - set(range(self.ranks)), set(links) - known):
            if what:
                raise UsageError(f"the plan's network has no {sorted(what)[0]}: give ranks and links of it")
        left = None if self.topology is None else survivors(self.topology, ranks, links)
        count = self.ranks - len(set(ranks)) if left is None else left.ranks
        again = (_again(pick, count, left) for pick in self.picks)
        rows_of = groupby(again, key=lambda pick: (pick.collective, pick.builder, pick.pieces))
        joined = (list(same) for _, same in rows_of)
        return Plan(count, tuple(replace(row[0], up_to_bytes=row[-1].up_to_bytes) for row in joined), left)

    @property
    def schedules(self) -> tuple[tuple[str, int | None, str], ...]:
        """What results depend on: collective, largest size and digest of each row. Reasons do not count."""
        return tuple((pick.collective, pick.up_to_bytes, pick.digest) for pick in self.picks)

    def to_json(self) -> str:
        """Text for the other ranks and for a checkpoint; the same text for the same plan."""
        network = None if self.topology is None else plain(self.topology)
        picks = [
            {key: value for key, value in asdict(pick).items() if key not in _OPTIONAL or value is not None}
            for pick in self.picks
        ]
        return json.dumps({"format": _FORMAT, "ranks": self.ranks, "picks": picks, "topology": network})

    @staticmethod
    def from_json(text: str) -> Plan:
        """Reads what `to_json` wrote; raises UsageError if it is something else."""
        try:
            fields = json.loads(text)
            found = fields["format"]
        except (ValueError, TypeError, KeyError) as error:
            raise _no_plan(error) from error
        if not isinstance(found, int):
            raise _no_plan(ValueError(f"its format is {found!r}"))
        if found != _FORMAT:
            raise UsageError(f"the plan has format {found}, this tweed reads {_FORMAT}; make a new one")
        try:
            return _read(fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _no_plan(error) from error

    def _schedule(self, pick: Pick) -> Schedule:
        schedule = built(pick.collective, pick.builder, self.ranks, self.topology, pick.pieces)
        if digest(schedule) != pick.digest:
            raise UsageError(
                f"builder '{pick.builder}' makes another {pick.collective} here than where the plan was made "
                f"({digest(schedule)}, not {pick.digest}); run the same version of tweed, or make a new plan"
            )
        return schedule


def plan(
    ranks: int,
    links: Links,
    overrules: Mapping[str, str] | None = None,
    missing: Collection[around.Pair] = (),
) -> Plan:
    """Chooses a builder for every collective and size.

    Args:
      ranks: the number of ranks.
      links: what the links can do.
      overrules: builder by collective, such as `{"all_reduce": "ring"}`.
      missing: pairs of ranks that had better not send to each other, whichever comes first. All-reduces,
        reduce-scatters and all-gathers do without them, where others need no more than that.

    Raises:
      UsageError: an overrule names a builder or a collective that does not exist, or one for all_to_all
        that hands parts on.

    Cost: about 1 ms for 8 ranks in shared memory, 5 ms on a network; builds and checks what it picks.

    Example:
      >>> plan(4, NETWORK, {"all_reduce": "ring"}).pick("all_reduce", 1024).builder
      'ring'
    """
    asked = dict(overrules or {})
    for collective in asked.keys() - set(COLLECTIVES):
        raise UsageError(f"cannot overrule '{collective}'; there are {', '.join(COLLECTIVES)}")
    picks = list[Pick]()
    left = around.network(ranks, links, missing) if missing else None
    for name in COLLECTIVES:
        without = [] if left is None or name in asked else around.choices(name, _SIZES, left, links)
        choices = [(size, choose(name, size, ranks, links, asked=asked.get(name))) for size in _SIZES]
        found = rows(without, left, links) if without else rows(choices, left)
        picks += (replace(pick, piece_bytes=piece_bytes(links)) for pick in found)
    follows = any(pick.pieces is not None for pick in picks)
    return Plan(ranks, tuple(picks), left if follows else None)


def piece_bytes(links: Links) -> int | None:
    """How short pieces are to be, so that one that has begun to leave holds an urgent one up for some
    milliseconds only; a power of two, as links are measured coarsely. None: as the engine cuts, as on links
    that are quick or shared memory.

    Example:
      >>> piece_bytes(NETWORK), piece_bytes(Links(latency_s=1e-3, bandwidth=1.25e7))
      (None, 32768)
    """
    carried = max(round(links.bandwidth * _PIECE_S), 1)
    short = max(1 << (carried.bit_length() - 1), _LEAST_PIECE_BYTES)
    return None if links.shared_memory or short >= _PIECE_BYTES else short


def rows(
    choices: Sequence[tuple[int, Choice]], topology: Topology | None = None, links: Links | None = None
) -> Iterator[Pick]:
    """Rows of a plan from choices for rising sizes of one collective: one for each stretch of equal builders.

    The last row has no end, whatever the largest size. Builds and checks what was chosen. With `links`, what
    each of the topology's does, rows say how much may be in flight.
    """
    for (builder, pieces), same in groupby(choices, key=lambda pair: (pair[1].builder, pair[1].pieces)):
        row = list(same)
        size, choice = row[-1][0], row[0][1]
        up_to = None if size == choices[-1][0] else size
        schedule = built(choice.collective, builder, choice.ranks, topology, pieces)
        most = None if links is None else around.in_flight_bytes(schedule, links)
        yield Pick(choice.collective, up_to, builder, choice.why, digest(schedule), pieces, most)


def built(
    collective: str, builder: str, ranks: int, topology: Topology | None = None, pieces: int | None = None
) -> Schedule:
    """The schedule behind a pick, from the cache of `build`.

    Raises: UsageError for a builder that is not there, or that the engine cannot run.
    """
    if pieces is not None and topology is not None:
        return build(collective, builder, topology, pieces)
    schedule = build(collective, builder, ranks)
    if collective == "all_to_all" and not schedule.direct:
        raise UsageError(
            f"builder '{builder}' hands parts of an all_to_all on, but they may differ in size, which only "
            "their two ends know; use a direct builder, such as 'pairwise'"
        )
    return schedule


def _again(pick: Pick, ranks: int, left: Topology | None) -> Pick:
    """The pick's row for what is left."""
    if left is None or pick.pieces is None:
        return replace(pick, digest=digest(built(pick.collective, pick.builder, ranks)))
    there = {row.name: row.pieces[0] for row in fitting(pick.collective, left)} | {pick.builder: pick.pieces}
    names = ([pick.builder] if pick.builder in _STAY else []) + [name for name in QUICK if name in there]
    for name in dict.fromkeys(names):
        try:
            made = digest(build(pick.collective, name, left, there[name]))
        except TweedError:  # this one cannot; the next may
            continue
        why = pick.why if name == pick.builder else f"takes over from '{pick.builder}' after a loss"
        most = pick.in_flight_bytes if name == pick.builder else None
        return replace(pick, builder=name, pieces=there[name], why=why, digest=made, in_flight_bytes=most)
    raise UsageError(f"no builder has a schedule for {pick.collective} on what is left: {left!r}")


def digest(schedule: Schedule) -> str:
    """As a plan stores it."""
    return f"{schedule.digest:016x}"


def _read(fields: Mapping[str, Any]) -> Plan:
    for name, most in ((name, pick.get(name)) for pick in fields["picks"] for name in _OPTIONAL):
        if most is not None and (not isinstance(most, int) or most < 1):
            raise ValueError(f"{name} is {most!r}")
    picks = tuple(Pick(**pick) for pick in fields["picks"])
    network = fields["topology"]
    return Plan(int(fields["ranks"]), picks, None if network is None else from_plain(network))


def _no_plan(error: Exception) -> UsageError:
    return UsageError(f"this is not a plan: {error!r}; make a new one with `tweed plan`")
