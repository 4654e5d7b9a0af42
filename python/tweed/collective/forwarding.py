"""What switches can make use of: they forward what comes in, and copy nothing.

A cut knows nothing of that: where more can leave a switch than can enter it, as between a slow way up and a
fast way down, the bottleneck cut promises what only a switch that copies could keep.
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
"""A cut that lacks no more than this share of the rate is met: what floating point can tell."""


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
    usable = {link: min(float(value / rate), most) for link, value in links.items()}
    program = _Program(usable, ranks, nodes)
    everybody = frozenset(range(nodes))
    seen: set[frozenset[int]] = set()
    sets = {everybody - {rank} for rank in range(ranks)}
    while sets:
        seen |= sets
        program.add(sorted(sets, key=sorted))
        shares, reached = program.solve()
        sets = _violated(dict(zip(links, shares, strict=True)), reached, ranks, nodes) - seen
    pairs = zip(links.items(), map(Fraction, shares), strict=True)
    return {link: min(value * GRAIN, ceil(share * rate * GRAIN)) for (link, value), share in pairs}


class _Program:
    """Maximise the rate of every rank over what is used of the links."""

    def __init__(self, links: Mapping[tuple[int, int], float], ranks: int, nodes: int) -> None:
        self._ends = list(links)
        self._ranks = ranks
        self._bounds = [(0.0, value) for value in links.values()] + [(0.0, None)]
        self._rows = [self._balance(switch) for switch in range(ranks, nodes)]

    def _balance(self, switch: int) -> list[float]:
        return [float((a == switch) - (b == switch)) for a, b in self._ends] + [0.0]

    def add(self, sets: Iterable[frozenset[int]]) -> None:
        """No rank may send faster than these sets allow."""
        for inside in sets:
            out = [-float(a in inside and b not in inside) for a, b in self._ends]
            self._rows.append([*out, float(sum(node < self._ranks for node in inside))])

    def solve(self) -> tuple[list[float], float]:
        """The shares of the links, and the rate."""
        import numpy as np
        from scipy.optimize import linprog
        from scipy.sparse import csr_array

        aim = [0.0] * len(self._ends) + [-1.0]
        rows = csr_array(np.array(self._rows))
        limits = np.zeros(len(self._rows))
        result: Any = linprog(aim, A_ub=rows, b_ub=limits, bounds=self._bounds, method="highs-ds")
        return list(result.x[:-1]), float(result.x[-1])


def _violated(
    shares: dict[tuple[int, int], float], rate: float, ranks: int, nodes: int
) -> set[frozenset[int]]:
    """Sets that do not let every rank inside send at `rate`."""
    supply = LARGEST // ranks
    whole = {link: round(min(1.0, share / rate / ranks) * supply * ranks) for link, share in shares.items()}
    flows = Flows(whole, dict.fromkeys(range(ranks), supply), nodes)
    found = set()
    for rank in range(ranks):
        value, result = flows.to(rank)
        if value < flows.total * (1 - _CLOSE) - len(shares):
            found.add(flows.inside(result))
    return found
