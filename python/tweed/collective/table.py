"""The table of builders. A new one is a file and its rows here."""

from __future__ import annotations

from functools import lru_cache

from tweed._core import Schedule
from tweed.collective import (
    binomial_tree,
    double_binary_tree,
    exchange,
    halving_doubling,
    pairwise,
    ring,
    star,
)
from tweed.collective.builder import Builder
from tweed.errors import UsageError

COLLECTIVES = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all_to_all",
)
"""Every collective, in the order of the engine's C table."""

# Where two take the same time, the chooser takes the earlier row.
_ROWS = (
    exchange.all_reduce,
    pairwise.all_reduce,
    pairwise.reduce_scatter,
    pairwise.all_gather,
    pairwise.broadcast,
    pairwise.reduce,
    pairwise.all_to_all,
    star.all_reduce,
    star.reduce_scatter,
    star.all_gather,
    star.broadcast,
    star.reduce,
    star.gather,
    star.scatter,
    star.all_to_all,
    halving_doubling.all_reduce,
    halving_doubling.reduce_scatter,
    halving_doubling.all_gather,
    halving_doubling.broadcast,
    halving_doubling.all_to_all,
    double_binary_tree.all_reduce,
    double_binary_tree.broadcast,
    double_binary_tree.reduce,
    binomial_tree.all_reduce,
    binomial_tree.broadcast,
    binomial_tree.reduce,
    binomial_tree.gather,
    binomial_tree.scatter,
    ring.all_reduce,
    ring.reduce_scatter,
    ring.all_gather,
    ring.broadcast,
    ring.reduce,
)

_TABLE: dict[tuple[str, str], Builder] = {(row.collective, row.name): row for row in _ROWS}


def register(builder: Builder) -> None:
    """Adds a builder of your own, so that plans can name it. Do so on every rank, before groups are made.

    Raises:
      UsageError: the name is taken for this collective, or there is no such collective.
    """
    key = (builder.collective, builder.name)
    if builder.collective not in COLLECTIVES:
        raise UsageError(
            f"there is no collective '{builder.collective}'; use one of {', '.join(COLLECTIVES)}"
        )
    if _TABLE.setdefault(key, builder) != builder:
        raise UsageError(
            f"a builder '{builder.name}' for {builder.collective} is there already; rename yours"
        )


def builders(collective: str) -> tuple[Builder, ...]:
    """Every builder that makes `collective`; none if there is no such collective."""
    return tuple(row for row in _TABLE.values() if row.collective == collective)


def find(collective: str, name: str) -> Builder:
    """The builder `name` for `collective`; raises UsageError with those there are."""
    row = _TABLE.get((collective, name))
    if row is None:
        there = ", ".join(row.name for row in builders(collective)) or "none: there is no such collective"
        raise UsageError(f"no builder '{name}' for {collective}; there are: {there}")
    return row


@lru_cache(maxsize=256)
def build(collective: str, name: str, ranks: int) -> Schedule:
    """The schedule of a builder from the table, built and checked once in a process.

    Raises:
      UsageError: there is no such builder.
      ScheduleError: the builder is wrong.
    """
    return find(collective, name).schedule(ranks)
