"""What switches can make use of: they forward what comes in, and copy nothing.

A cut knows nothing of that: where more can leave a switch than can enter it, as between a slow link up and a
fast link down, the bottleneck cut promises what only a switch that copies could keep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import ceil
from typing import Any

from tweed.collective.flows import LARGEST, Capacities, Flows

GRAIN = 1 << 20
"""What can be used of a link is counted in this part of a byte per second."""

_CLOSE = 1e-7
"""A cut that lacks no more than this share of the rate is met: what floating point can resolve."""


def copies_needed(links: Capacities, ranks: int) -> bool:
    """Can more leave some switch than can enter it?"""
    balance: Counter[int] = Counter()
    for (a, b), value in links.items():
        balance[a] += value
        balance[b] -= value
    return any(more > 0 for node, more in balance.items() if node >= ranks)


def forwarded(links: Capacities, ranks: int, nodes: int, rate: Fraction) -> Capacities:
    """The part of each link's capacity that an all-gather can use, as no switch sends more than it gets.

    Among all such parts it takes one whose bottleneck cut is best: a linear program whose cuts are found by
    max-flow as they are needed.

    Args:
      links: bytes per second.
      ranks: nodes below are ranks, others switches.
      nodes: how many there are.
      rate: of the bottleneck cut, if switches copied.

    Returns:
      What to use of each link, in parts of a byte per second: see `GRAIN`.

    Cost: a few linear programs with a variable for each link, and a max-flow to every rank for each.
    Source: own; that trees reach the rate is the theorem of Bang-Jensen, Frank and Jackson, "Preserving and
    increasing local edge-connectivity in mixed graphs", 1995: trees that span some nodes of a graph, of which
    the others have no more links out than in.
    """
    most = ranks * (ranks - 1)
    program = _Program({link: min(float(value / rate), most) for link, value in links.items()}, ranks, nodes)
    while True:
        shares, reached = program.fastest()
        scale = (LARGEST // ranks) / reached
        whole = {link: round(min(share * scale, LARGEST)) for link, share in shares.items()}
        if not program.add(_narrow(whole, ranks, nodes, LARGEST // ranks)):
            exact = {link: Fraction(share) * rate * GRAIN for link, share in shares.items()}
            return {link: min(value * GRAIN, ceil(exact[link])) for link, value in links.items()}


def whole_parts(links: Capacities, ranks: int, nodes: int, trees: int) -> Capacities | None:
    """The least of each link, in whole numbers, that holds `trees` from every rank if switches do not copy.

    None if there is no such part. Cost: as `forwarded`, with programs over whole numbers.
    """
    program = _Program({link: float(value) for link, value in links.items()}, ranks, nodes)
    while True:
        found = program.least(trees)
        if found is None or not program.add(_narrow(found, ranks, nodes, trees)):
            return found


def _narrow(links: Capacities, ranks: int, nodes: int, supply: int) -> list[frozenset[int]]:
    """Sets that clearly do not let every rank inside send `supply`."""
    flows = Flows(links, dict.fromkeys(range(ranks), supply), nodes)
    enough = flows.total if flows.total < 1 / _CLOSE else flows.total * (1 - _CLOSE) - len(links)
    found = set()
    for rank in range(ranks):
        value, result = flows.to(rank)
        if value < enough:
            found.add(flows.inside(result))
    return sorted(found, key=sorted)


class _Program:
    """What to use of each link, so that switches are in balance and the sets found so far let enough out."""

    def __init__(self, links: Mapping[tuple[int, int], float], ranks: int, nodes: int) -> None:
        self._links = dict(links)
        self._ranks = ranks
        self._switches = range(ranks, nodes)
        everybody = frozenset(range(nodes))
        self._sets = [everybody - {rank} for rank in range(ranks)]

    def add(self, sets: Iterable[frozenset[int]]) -> bool:
        """More sets; whether any is new."""
        new = [inside for inside in sets if inside not in self._sets]
        self._sets.extend(new)
        return bool(new)

    def fastest(self) -> tuple[dict[tuple[int, int], float], float]:
        """The use of the links that lets each rank send most, and how much that is."""
        found = self._solve([0.0] * len(self._links) + [-1.0], (0.0, float("inf")), whole=False)
        assert found is not None
        return dict(zip(self._links, found, strict=False)), found[-1]

    def least(self, trees: int) -> Capacities | None:
        """The least use of the links that lets each rank send to `trees`."""
        found = self._solve([1.0] * len(self._links) + [0.0], (float(trees), float(trees)), whole=True)
        return None if found is None else {k: round(v) for k, v in zip(self._links, found, strict=False)}

    def _solve(self, costs: list[float], rate: tuple[float, float], whole: bool) -> list[float] | None:
        import numpy as np
        from scipy.optimize import Bounds, LinearConstraint, milp

        ends = list(self._links)
        rows = [[float((a == switch) - (b == switch)) for a, b in ends] + [0.0] for switch in self._switches]
        for inside in self._sets:
            out = [-float(a in inside and b not in inside) for a, b in ends]
            rows.append([*out, float(sum(node < self._ranks for node in inside))])
        result: Any = milp(
            np.array(costs),
            constraints=LinearConstraint(np.array(rows), -np.inf, np.zeros(len(rows))),
            bounds=Bounds(
                np.array([0.0] * len(ends) + [rate[0]]), np.array([*self._links.values(), rate[1]])
            ),
            integrality=np.array([float(whole)] * len(ends) + [0.0]),
        )
        return None if result.x is None else [float(value) for value in result.x]
