"""How many trees each rank is the root of, and how often they may use each link."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from tweed.collective.flows import Capacities, Flows
from tweed.collective.forwarding import copies_needed, whole_parts

GOOD_ENOUGH = Fraction(99, 100)
"""Fewer trees are better than the last part of a hundred of the rate."""

_MOST_TREES = 1024


@dataclass(frozen=True, slots=True)
class Shares:
    """Trees of equal bandwidth.

    Attributes:
      trees: from each rank.
      uses: how many trees may use each link.
      bandwidth: bytes per second of each tree.
    """

    trees: int
    uses: Capacities
    bandwidth: Fraction


def shares(links: Capacities, nodes: int, ranks: int, rate: Fraction, trees: int | None = None) -> Shares:
    """The fewest trees per rank (or `trees`) that together have nearly `rate`, which cuts allow each rank.

    With `k` trees per rank, links are cut into `floor(capacity / bandwidth)` parts of a tree's bandwidth; the
    bandwidth is the largest with which every cut still holds the trees. Some `k` has no loss at all, but it
    may be large.

    Cost: for each number of trees tried, a few rounds of max-flow to every rank.
    Source: the fixed-k variant of ForestColl, arXiv 2402.06787, section 5.5.
    """
    best: Shares | None = None
    for many in [trees] if trees else range(1, max(2, _MOST_TREES // ranks) + 1):
        found = _largest(links, nodes, ranks, many, rate / many)
        if best is None or found.bandwidth * many > best.bandwidth * best.trees:
            best = found
        if best.bandwidth * best.trees >= GOOD_ENOUGH * rate:
            break
    assert best is not None
    return best


def parts(links: Capacities, bandwidth: Fraction, most: int) -> Capacities:
    """How many trees of `bandwidth` fit each link; no more than `most` are counted."""
    return {link: min(most, int(value / bandwidth)) for link, value in links.items()}


def less(values: Iterator[int], bandwidth: Fraction) -> Fraction:
    """The next bandwidth below, at which one more part fits one of the links with these capacities."""
    return max(Fraction(value, int(value / bandwidth) + 1) for value in values if value)


def _largest(links: Capacities, nodes: int, ranks: int, trees: int, bandwidth: Fraction) -> Shares:
    while True:
        uses = parts(links, bandwidth, trees * ranks * (ranks - 1))
        inside = _too_narrow(uses, nodes, ranks, trees)
        if inside is None:
            used = whole_parts(uses, ranks, nodes, trees) if copies_needed(uses, ranks) else uses
            if used is not None:
                return Shares(trees, used, bandwidth)
            bandwidth = less(iter(links.values()), bandwidth)
            continue
        out = [links[a, b] for a, b in links if a in inside and b not in inside]
        needed = trees * sum(node < ranks for node in inside)
        while sum(int(value / bandwidth) for value in out) < needed:
            bandwidth = less(iter(out), bandwidth)


def _too_narrow(uses: Capacities, nodes: int, ranks: int, trees: int) -> frozenset[int] | None:
    """A set of nodes that does not let out a tree for each time a rank inside is a root."""
    flows = Flows(uses, dict.fromkeys(range(ranks), trees), nodes)
    for rank in range(ranks):
        value, result = flows.to(rank)
        if value < flows.total:
            return flows.inside(result)
    return None
