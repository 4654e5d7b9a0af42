"""Random networks in which every rank has equally many neighbours."""

from __future__ import annotations

from tweed._core import Topology
from tweed.collective.topology.base import GIGABIT, Wire, at_least, both_ways
from tweed.errors import UsageError
from tweed.rng import uniform

Pair = tuple[int, int]


def random_regular(ranks: int, degree: int, seed: int, wire: Wire = GIGABIT) -> Topology:
    """A connected network of so many neighbours each, drawn by `seed`: the same on every machine.

    Links of a regular ring lattice are crossed over, ten times as often as there are links, and on until the
    network is connected. This is close to uniform among such networks, not exactly so.

    Raises: UsageError if there is no connected network of this kind.
    """
    at_least(2, ranks=ranks)
    if not (1 if ranks == 2 else 2) <= degree < ranks or ranks * degree % 2:
        raise UsageError(
            f"{ranks} ranks cannot have {degree} neighbours each: give a degree from 2 to {ranks - 1}"
            + (", an even one, as the number of ranks is odd" if ranks % 2 else "")
        )
    pairs = _lattice(ranks, degree)
    crossed = _Crossing(pairs, seed)
    crossed.times(10 * len(pairs))
    while not _connected(ranks, crossed.pairs):
        crossed.times(len(pairs))
    name = f"random {ranks} by {degree}, seed {seed}"
    return Topology(ranks, list(both_ways(sorted(crossed.pairs), wire)), name)


def _lattice(ranks: int, degree: int) -> list[Pair]:
    strides = range(1, degree // 2 + 1)
    pairs = {_pair(rank, (rank + stride) % ranks) for rank in range(ranks) for stride in strides}
    if degree % 2:
        pairs |= {(rank, rank + ranks // 2) for rank in range(ranks // 2)}
    return sorted(pairs)


class _Crossing:
    """Takes two links, a-b and c-d, and makes them a-d and c-b where both are new."""

    def __init__(self, pairs: list[Pair], seed: int) -> None:
        self.pairs, self._there = pairs, set(pairs)
        self._seed, self._draws = seed, 0

    def times(self, count: int) -> None:
        for _ in range(count):
            self._once()

    def _draw(self, limit: int) -> int:
        self._draws += 1
        return int(uniform(self._seed, self._draws) * limit)

    def _once(self) -> None:
        i, j, turned = self._draw(len(self.pairs)), self._draw(len(self.pairs)), self._draw(2)
        (a, b), (c, d) = self.pairs[i], self.pairs[j][:: -1 if turned else 1]
        new = _pair(a, d), _pair(c, b)
        if a == d or c == b or new[0] == new[1] or not self._there.isdisjoint(new):
            return
        self._there -= {self.pairs[i], self.pairs[j]}
        self._there |= set(new)
        self.pairs[i], self.pairs[j] = new


def _pair(a: int, b: int) -> Pair:
    return (a, b) if a < b else (b, a)


def _connected(ranks: int, pairs: list[Pair]) -> bool:
    """Joins the groups of both ends of every link (union-find)."""
    group = list(range(ranks))

    def leader(rank: int) -> int:
        while group[rank] != rank:
            group[rank] = rank = group[group[rank]]
        return rank

    for a, b in pairs:
        group[leader(a)] = leader(b)
    return len({leader(rank) for rank in range(ranks)}) == 1
