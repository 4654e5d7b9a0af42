"""The table of builders: which makes which collective. A new one is a file, and its name here."""

from __future__ import annotations

from functools import lru_cache

from tweed._core import Schedule, Topology
from tweed.collective.binomial_tree import binomial_tree
from tweed.collective.builder import Builder, of_patterns
from tweed.collective.double_binary_tree import double_binary_tree
from tweed.collective.halving_doubling import halving_doubling
from tweed.collective.pairwise import exchange, pairwise
from tweed.collective.pattern import Pattern
from tweed.collective.ring import chain, ring
from tweed.collective.star import star
from tweed.collective.topology_aware.bucket import bucket
from tweed.collective.topology_aware.exact import exact
from tweed.collective.topology_aware.forest import forest
from tweed.collective.topology_aware.hdrm import hdrm
from tweed.collective.topology_aware.hierarchy import hierarchy
from tweed.collective.topology_aware.multitree import multitree, multitree_split
from tweed.collective.topology_aware.ring_2d import ring_2d
from tweed.collective.topology_aware.ring_bidirectional import ring_bidirectional
from tweed.collective.topology_aware.swing import swing, swing_latency
from tweed.collective.topology_aware.three_tree import three_tree
from tweed.collective.topology_aware.time_expanded import time_expanded, time_expanded_latency
from tweed.errors import UsageError

_SUMS = (
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
_ONLY_SUMS = (double_binary_tree, ring_2d, swing_latency, three_tree, binomial_tree, exchange)
_HALVES = tuple(row for row in _SUMS if row not in _ONLY_SUMS)

# Where two take the same time, the chooser and the planner take the earlier one.
_TABLE: dict[str, tuple[Builder, ...]] = {
    "all_reduce": _SUMS,
    "reduce_scatter": _HALVES,
    "all_gather": _HALVES,
    "broadcast": (pairwise, star, halving_doubling, double_binary_tree, binomial_tree, chain, hierarchy),
    "reduce": (pairwise, star, double_binary_tree, binomial_tree, chain, hierarchy),
    "gather": (star, binomial_tree),
    "scatter": (star, binomial_tree),
    "all_to_all": (pairwise, star, halving_doubling),
}

COLLECTIVES = tuple(_TABLE)
"""Every collective, in the order of the engine's C table."""


def register(pattern: Pattern) -> None:
    """Adds a pattern of your own, so that plans can name it. Do so on every rank, before groups are made.

    Raises:
      UsageError: the name is taken for this collective, or there is no such collective.
    """
    collective, name = pattern.collective, pattern.name
    if collective not in COLLECTIVES:
        raise UsageError(f"there is no collective '{collective}'; use one of {', '.join(COLLECTIVES)}")
    taken = next((row for row in builders(collective) if row.name == name), None)
    if taken is None:
        _TABLE[collective] += (of_patterns(pattern),)
    elif taken.patterns.get(collective) != pattern:
        raise UsageError(f"a builder '{name}' for {collective} is there already; rename yours")


def builders(collective: str) -> tuple[Builder, ...]:
    """Every builder that makes `collective`; none if there is no such collective.

    Example:
      >>> [row.name for row in builders("gather")]
      ['star', 'binomial_tree']
    """
    return _TABLE.get(collective, ())


def find(collective: str, name: str) -> Builder:
    """The builder `name` for `collective`.

    Raises: UsageError if there is none; lists those that there are.

    Example:
      >>> find("gather", "star").name
      'star'
    """
    for row in builders(collective):
        if row.name == name:
            return row
    there = ", ".join(row.name for row in builders(collective)) or "none: there is no such collective"
    raise UsageError(f"no builder '{name}' for {collective}; there are: {there}")


@lru_cache(maxsize=512)
def build(collective: str, name: str, network: Topology | int, pieces: int = 1) -> Schedule:
    """The schedule of a builder from the table, built and checked once in a process.

    Args:
      collective: such as `all_reduce`.
      name: the builder's.
      network: its links; or only the number of ranks, each of which reaches every other: a complete graph.
      pieces: into how many pieces each share of the buffer is cut; patterns cut none.

    Raises:
      UsageError: there is no such builder, it has no schedule for this network (it names what it needs), or
        the network is none that collectives can run on (see `topology.check`).
      ScheduleError: the builder is wrong.

    Example:
      >>> build("all_reduce", "ring", 4).cost(4096).steps
      6
    """
    return find(collective, name).schedule(collective, network, pieces)
