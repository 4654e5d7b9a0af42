"""Undirected spanning trees: how many a network holds, and in which direction they may grow.

A tree that takes sums up to its root and values down again uses both directions of each of its links once. So
where links are alike in both directions, an all-reduce runs over undirected trees. How many there are is the
least, over all ways to part the ranks, of the capacity between parts by the number of parts less one (Tutte;
Nash-Williams, 1961). As many trees from one root exist once each unit of a link is given the right one of its
directions (Frank, "On the orientation of graphs", 1980), and then they are found as directed trees are.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from tweed.collective.flows import LARGEST, Capacities, Flows
from tweed.collective.topology_aware.forest.shares import GOOD_ENOUGH, Shares, less, parts

_MOST_TREES = 64

_CLOSE = 1e-6


def is_even(links: Capacities) -> bool:
    """Is every link alike in both directions?"""
    return all(links.get((b, a)) == value for (a, b), value in links.items())


def strength(links: Capacities, ranks: int) -> float:
    """Bytes per second of all undirected trees that links, alike in both directions, hold together."""
    unit = max(links.values())
    program = _Program({link: value / unit for link, value in links.items()}, ranks, 0)
    while True:
        found = program.most()
        assert found is not None
        rate, given = found
        scale = (LARGEST // 2) / max(1.0, rate)
        whole = {link: round(value * scale) for link, value in given.items()}
        if not program.add(_short(whole, ranks, 0, int(rate * scale * (1 - _CLOSE)))):
            return rate * unit


def oriented(links: Capacities, depths: list[int], trees: int) -> Capacities | None:
    """The direction of each link's units that holds `trees` from the rank of depth 0; None: there is none.

    Where there is a choice, they go away from the root.
    """
    root = depths.index(0)
    program = _Program({link: float(value) for link, value in links.items()}, len(depths), root)
    while True:
        found = program.exactly(trees, depths)
        if found is None or not program.add(_short(found, len(depths), root, trees)):
            return found


def even_shares(links: Capacities, ranks: int, depths: list[int]) -> tuple[Shares, Capacities]:
    """The fewest trees (`trees` counts them all) that are nearly the best, and their links' directions."""
    most = Fraction(strength(links, ranks))
    best: tuple[Shares, Capacities] | None = None
    for trees in range(1, _MOST_TREES + 1):
        reached = best[0].bandwidth * best[0].trees if best else Fraction(0)
        if reached >= GOOD_ENOUGH * most:
            break
        found = _largest(links, depths, trees, (most / trees, reached / trees))
        best = found or best
    assert best is not None
    return best


def _largest(
    links: Capacities, depths: list[int], trees: int, between: tuple[Fraction, Fraction]
) -> tuple[Shares, Capacities] | None:
    """The largest bandwidth of a tree, not above the first and above the second, at which so many fit."""
    bandwidth, least = between
    bandwidth *= 1 + Fraction(1, 10**6)
    needed = trees * (len(depths) - 1)
    while (bandwidth := less(iter(links.values()), bandwidth)) > least * (1 + Fraction(1, 10**6)):
        uses = parts(links, bandwidth, trees)
        if sum(uses.values()) >= 2 * needed and (given := oriented(uses, depths, trees)):
            return Shares(trees, uses, bandwidth), given
    return None


def _short(given: Capacities, ranks: int, root: int, rate: int) -> list[frozenset[int]]:
    """Sets without the root that less than `rate` leads into."""
    flows = Flows(given, {root: rate}, ranks)
    found = set()
    for rank in range(ranks):
        if rank != root:
            value, result = flows.to(rank)
            if value < rate:
                found.add(frozenset(range(ranks)) - flows.inside(result))
    return sorted(found, key=sorted)


class _Program:
    """How to part each link's capacity between its directions, under the cuts found to matter."""

    def __init__(self, links: dict[tuple[int, int], float], ranks: int, root: int) -> None:
        self._ends = list(links)
        self._most = list(links.values())
        place = {link: index for index, link in enumerate(self._ends)}
        self._pairs = [(place[a, b], place[b, a]) for a, b in self._ends if a < b]
        self._sets = [frozenset([rank]) for rank in range(ranks) if rank != root]

    def add(self, sets: Iterable[frozenset[int]]) -> bool:
        """More sets that must let enough in; whether any is new."""
        new = [inside for inside in sets if inside not in self._sets]
        self._sets.extend(new)
        return bool(new)

    def most(self) -> tuple[float, dict[tuple[int, int], float]] | None:
        """The largest rate into all sets."""
        found = self._solve([0.0] * len(self._ends) + [-1.0], (0.0, float(sum(self._most))), whole=False)
        return None if found is None else (found[-1], dict(zip(self._ends, found, strict=False)))

    def exactly(self, trees: int, depths: list[int]) -> Capacities | None:
        """Whole numbers that let `trees` into all sets."""
        costs = [1.0 if depths[b] > depths[a] else 2.0 for a, b in self._ends]
        found = self._solve([*costs, 0.0], (float(trees), float(trees)), whole=True)
        if found is None:
            return None
        return {link: round(value) for link, value in zip(self._ends, found, strict=False) if value > 0.5}

    def _solve(self, costs: list[float], rate: tuple[float, float], whole: bool) -> list[float] | None:
        import numpy as np
        from scipy.optimize import Bounds, LinearConstraint, milp

        many = len(self._ends)
        low, high = np.zeros(many + 1), np.array([*self._most, rate[1]])
        low[-1] = rate[0]
        rows = np.zeros((len(self._pairs) + len(self._sets), many + 1))
        limits = np.zeros(len(rows))
        for row, (there, back) in enumerate(self._pairs):
            rows[row, [there, back]] = 1
            limits[row] = self._most[there]
        for row, inside in enumerate(self._sets, start=len(self._pairs)):
            rows[row] = [*(-float(a not in inside and b in inside) for a, b in self._ends), 1.0]
        result: Any = milp(
            np.array(costs),
            constraints=LinearConstraint(rows, -np.inf, limits),
            bounds=Bounds(low, high),
            integrality=np.array([float(whole)] * many + [0.0]),
        )
        return None if result.x is None else [float(value) for value in result.x]
