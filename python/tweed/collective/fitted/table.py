"""The table of builders for networks. A new one is a file and its row here."""

from __future__ import annotations

from functools import lru_cache

from tweed._core import Schedule, Topology
from tweed.collective.fitted.base import Fitted
from tweed.collective.fitted.bucket import bucket
from tweed.collective.fitted.exact import exact
from tweed.collective.fitted.forest import forest
from tweed.collective.fitted.hdrm import hdrm
from tweed.collective.fitted.hierarchy import hierarchy
from tweed.collective.fitted.multitree import multitree, multitree_split
from tweed.collective.fitted.ring_2d import ring_2d
from tweed.collective.fitted.ring_bidirectional import ring_bidirectional
from tweed.collective.fitted.routed import double_binary_tree, halving_doubling, ring
from tweed.collective.fitted.straight import binomial_tree, exchange, pairwise, star
from tweed.collective.fitted.swing import swing, swing_latency
from tweed.collective.fitted.three_tree import three_tree
from tweed.collective.fitted.time_expanded import time_expanded, time_expanded_latency
from tweed.errors import UsageError

_ROWS = (
    ring,
    halving_doubling,
    double_binary_tree,
    ring_2d,
    ring_bidirectional,
    bucket,
    hdrm,
    swing,
    swing_latency,
    three_tree,
    multitree,
    multitree_split,
    hierarchy,
    exact,
    time_expanded,
    time_expanded_latency,
    forest,
    binomial_tree,
    exchange,
    pairwise,
    star,
)

_TABLE = {row.name: row for row in _ROWS}


def rows() -> tuple[Fitted, ...]:
    """Every builder there is."""
    return _ROWS


def fitting(collective: str, topology: Topology) -> tuple[Fitted, ...]:
    """Every builder that makes `collective` on this network."""
    return tuple(row for row in _ROWS if collective in row.collectives and not row.refuses(topology))


def refusals(collective: str, topology: Topology) -> dict[str, str]:
    """Why the other builders that make `collective` have no schedule for this network, by name."""
    why = {row.name: row.refuses(topology) for row in _ROWS if collective in row.collectives}
    return {name: text for name, text in why.items() if text}


def find(name: str) -> Fitted:
    """The builder `name`; raises UsageError with those there are."""
    row = _TABLE.get(name)
    if row is None:
        raise UsageError(f"no builder '{name}' for networks; there are: {', '.join(_TABLE)}")
    return row


@lru_cache(maxsize=256)
def fit(collective: str, name: str, topology: Topology, pieces: int = 1) -> Schedule:
    """The schedule of a builder from the table, built and checked once in a process.

    Raises:
      UsageError: there is no such builder, or it has no schedule for this network.
      ScheduleError: the builder is wrong.
    """
    return find(name).schedule(collective, topology, pieces)
