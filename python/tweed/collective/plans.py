"""A plan: which builder each collective uses at which size. Rank 0 makes it, everybody uses it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby

from tweed._core import Schedule
from tweed.collective.chooser import Links, choose
from tweed.collective.table import COLLECTIVES, build
from tweed.errors import UsageError

_FORMAT = 1
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
    """

    collective: str
    up_to_bytes: int | None
    builder: str
    why: str
    digest: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Frozen picks for a number of ranks. All ranks of a group must hold the same one.

    Attributes:
      ranks: the number of ranks it is for.
      picks: rows; those of one collective are together, by rising size.
    """

    ranks: int
    picks: tuple[Pick, ...]

    def rows(self) -> list[tuple[str, int | None, Schedule]]:
        """The rows as the engine takes them.

        Raises:
          UsageError: a builder is missing here, or makes something else than where the plan was made.

        Cost: builds and checks each schedule once in a process.
        """
        return [(pick.collective, pick.up_to_bytes, self._schedule(pick)) for pick in self.picks]

    def pick(self, collective: str, numbytes: int) -> Pick:
        """The row for a size: the first of its collective that is large enough."""
        for pick in self.picks:
            if pick.collective == collective and (pick.up_to_bytes is None or numbytes <= pick.up_to_bytes):
                return pick
        raise UsageError(f"the plan has no row for '{collective}'; it has {', '.join(COLLECTIVES)}")

    def to_json(self) -> str:
        """Text for the other ranks and for a checkpoint; the same text for the same plan."""
        return json.dumps({"format": _FORMAT, **asdict(self)})

    @staticmethod
    def from_json(text: str) -> Plan:
        """Reads what `to_json` wrote; raises UsageError if it is something else."""
        try:
            fields = json.loads(text)
            picks = tuple(Pick(**pick) for pick in fields["picks"])
            found, ranks = fields["format"], int(fields["ranks"])
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(
                f"this is not a plan: {error!r}; make a new one with tweed.collective.plan"
            ) from error
        if found != _FORMAT:
            raise UsageError(f"the plan has format {found}, this tweed reads {_FORMAT}; make a new one")
        return Plan(ranks, picks)

    def _schedule(self, pick: Pick) -> Schedule:
        schedule = _built(pick.collective, pick.builder, self.ranks)
        if _hex(schedule) != pick.digest:
            raise UsageError(
                f"builder '{pick.builder}' makes another {pick.collective} here than where the plan was made "
                f"({_hex(schedule)}, not {pick.digest}); run the same version of tweed, or make a new plan"
            )
        return schedule


def plan(ranks: int, links: Links, overrules: Mapping[str, str] | None = None) -> Plan:
    """Chooses a builder for every collective and size.

    Args:
      ranks: the number of ranks.
      links: what the links can do.
      overrules: builder by collective, such as `{"all_reduce": "ring"}`.

    Raises:
      UsageError: an overrule names a builder or a collective that does not exist, or one for all_to_all
        that hands parts on.

    Cost: about 1 ms for 8 ranks in shared memory, 5 ms on a network; builds and checks what it picks.
    """
    asked = dict(overrules or {})
    for collective in asked.keys() - set(COLLECTIVES):
        raise UsageError(f"cannot overrule '{collective}'; there are {', '.join(COLLECTIVES)}")
    picks = (pick for name in COLLECTIVES for pick in _picks(name, ranks, links, asked.get(name)))
    return Plan(ranks, tuple(picks))


def _picks(collective: str, ranks: int, links: Links, asked: str | None) -> Iterator[Pick]:
    choices = [(size, choose(collective, size, ranks, links, asked=asked)) for size in _SIZES]
    for builder, same in groupby(choices, key=lambda pair: pair[1].builder):
        row = list(same)
        size, choice = row[-1][0], row[0][1]
        up_to = None if size == _SIZES[-1] else size
        yield Pick(collective, up_to, builder, choice.why, _hex(_built(collective, builder, ranks)))


def _built(collective: str, builder: str, ranks: int) -> Schedule:
    schedule = build(collective, builder, ranks)
    if collective == "all_to_all" and not schedule.direct:
        raise UsageError(
            f"builder '{builder}' hands parts of an all_to_all on, but they may differ in size, which only "
            "their two ends know; use a direct builder, such as 'pairwise'"
        )
    return schedule


def _hex(schedule: Schedule) -> str:
    return f"{schedule.digest:016x}"
