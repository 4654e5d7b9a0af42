"""The best schedules for a handful of ranks, found by a solver.

An all-gather is laid out in steps. A step takes one round or more; in a round a link that is as slow as the
slowest carries one chunk, and a wider one as many as it is wider. A solver is asked whether so many chunks
per rank can be gathered in so many steps and rounds: few steps are for short messages, few rounds per chunk
for long ones.

Source: Cai et al., "Synthesizing Optimal Collective Algorithms" (SCCL), PPoPP 2021, section 3. There it is a
question to an SMT solver, here an integer program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, product
from math import ceil, inf
from typing import NamedTuple, TypeVar

from tweed._core import Schedule, Topology
from tweed.collective.builder import Builder
from tweed.collective.topology.base import shortest_paths
from tweed.collective.topology_aware.trees import Edge, Tree, schedule_of
from tweed.errors import UsageError

K = TypeVar("K")

_MOST_RANKS = 8
# So many more steps than the longest path, and so much of the solver's search, are tried for a schedule.
_EXTRA_STEPS, _NODES = 1, 200


class Point(NamedTuple):
    """An all-gather of `chunks` per rank in `steps`, which together take `rounds`."""

    steps: int
    rounds: int
    chunks: int


class _Use(NamedTuple):
    """Chunk number `chunk` of `root` crosses a link in `step`: 1 if it does, else 0."""

    root: int
    chunk: int
    src: int
    dst: int
    step: int


def front(topology: Topology, most_rounds: int) -> list[Point]:
    """The points that no other beats in both steps and rounds per chunk; fewest steps first.

    It ends where rounds per chunk reach `bound`, or would need more than `most_rounds`.

    Cost: a run of the solver for each point that is tried, without limit. For a DGX-1 and 7 rounds, 5 s.
    """
    points, least, best = list[Point](), bound(topology), Fraction(most_rounds + 1)
    for steps in range(_diameter(topology), most_rounds + 1):
        point = next(
            (point for point in _candidates(steps, most_rounds, least, best) if solve(topology, point)), None
        )
        if point:
            points.append(point)
            best = Fraction(point.rounds, point.chunks)
        if best == least:
            break
    return points


def _candidates(steps: int, most_rounds: int, least: Fraction, below: Fraction) -> list[Point]:
    """Points with so many steps, fewest rounds per chunk first."""
    rounds = range(steps, most_rounds + 1)
    points = [
        Point(steps, r, c) for r in rounds for c in range(1, int(r / least) + 1) if Fraction(r, c) < below
    ]
    return sorted(points, key=lambda point: (Fraction(point.rounds, point.chunks), point.rounds))


def bound(topology: Topology) -> Fraction:
    """Rounds per chunk that no all-gather beats: what a set of ranks has, over what leaves it in a round."""
    width = _widths(topology)
    ranks = range(topology.ranks)
    sets = (set(inside) for size in ranks[1:] for inside in combinations(ranks, size))
    out = ((len(s), sum(w for (a, b), w in width.items() if a in s and b not in s)) for s in sets)
    return max(Fraction(inside, leaving) for inside, leaving in out)


def solve(topology: Topology, point: Point, nodes: int | None = None) -> list[Tree]:
    """The trees of an all-gather, each for one chunk, in root order; [] if there are none.

    Args:
      topology: of ranks only.
      point: what is asked for.
      nodes: of the solver's search; [] as well if none are found in so many. None: no limit.
    """
    uses = list(_uses(topology, point))
    values = _program(topology, point, uses).solve(nodes)
    return _trees([use for use in uses if values[use]]) if values else []


def _uses(topology: Topology, point: Point) -> Iterator[_Use]:
    """Every use that there can be: in the first step only roots have anything."""
    for root, chunk in product(range(topology.ranks), range(point.chunks)):
        for src, dst in _widths(topology):
            first = 0 if src == root else 1
            if dst != root:
                yield from (_Use(root, chunk, src, dst, step) for step in range(first, point.steps))


def _program(topology: Topology, point: Point, uses: list[_Use]) -> Program:
    program, width, steps = Program(), _widths(topology), range(point.steps)
    for use in uses:
        program.variable(use)
    for step in steps:
        program.variable(step, 1, point.rounds)
    program.row([(step, 1) for step in steps], point.rounds, point.rounds)
    for (src, dst, step), crossing in _grouped(uses, lambda use: (use.src, use.dst, use.step)).items():
        program.row([*((use, 1) for use in crossing), (step, -width[src, dst])], most=0)
    into = _grouped(uses, lambda use: (use.root, use.chunk, use.dst))
    ranks = range(topology.ranks)
    for root, chunk, rank in product(ranks, range(point.chunks), ranks):
        if rank != root:
            program.row([(use, 1) for use in into[root, chunk, rank]], 1, 1)
    for (root, chunk, src, _), crossing in _grouped(uses, lambda use: use[:4]).items():
        for step in steps if src != root else ():
            held = [(use, -1) for use in into[root, chunk, src] if use.step < step]
            program.row([*((use, 1) for use in crossing if use.step <= step), *held], most=0)
    return program


class Program:
    """An integer program: finds whole numbers that keep within bounds and rows.

    Variables are made when they are first named. The solver is HiGHS, which scipy brings along; it gives the
    same answer wherever its version is the same.
    """

    def __init__(self) -> None:
        self._columns: dict[Hashable, int] = {}
        self._most: list[float] = []
        self._least: list[float] = []
        self._terms: list[tuple[int, int, float]] = []
        self._rows: list[tuple[float, float]] = []

    def variable(self, name: Hashable, least: float = 0, most: float = 1) -> None:
        """Names a whole number between these bounds."""
        self._columns[name] = len(self._columns)
        self._least.append(least)
        self._most.append(most)

    def row(self, terms: Iterable[tuple[Hashable, float]], least: float = -inf, most: float = inf) -> None:
        """The sum of variables times factors is between these; names that are no variable count as 0."""
        known = [(self._columns[name], factor) for name, factor in terms if name in self._columns]
        self._terms += [(len(self._rows), column, factor) for column, factor in known]
        self._rows.append((least, most))

    def solve(self, nodes: int | None = None) -> dict[Hashable, int] | None:
        """Values that keep within all rows; None if there are none.

        None as well if none are found in so many `nodes` of the search; without `nodes` it has no limit.
        """
        import numpy as np
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        rows, columns, factors = zip(*self._terms, strict=True)
        shape = (len(self._rows), len(self._columns))
        least, most = zip(*self._rows, strict=True)
        found = milp(
            np.zeros(len(self._columns)),
            integrality=np.ones(len(self._columns)),
            bounds=Bounds(self._least, self._most),
            constraints=LinearConstraint(csr_array((factors, (rows, columns)), shape=shape), least, most),
            options={} if nodes is None else {"node_limit": nodes},
        )
        if found.x is None:
            return None
        return {name: round(found.x[column]) for name, column in self._columns.items()}


def _grouped(uses: list[_Use], key: Callable[[_Use], K]) -> defaultdict[K, list[_Use]]:
    groups: defaultdict[K, list[_Use]] = defaultdict(list)
    for use in uses:
        groups[key(use)].append(use)
    return groups


def _trees(used: list[_Use]) -> list[Tree]:
    trees = _grouped(used, lambda use: (use.root, use.chunk)).items()
    return [Tree(root, tuple(Edge(*use[2:]) for use in edges)) for (root, _), edges in trees]


@lru_cache(maxsize=64)
def _widths(topology: Topology) -> dict[tuple[int, int], int]:
    """How many chunks each link carries in a round: its width over that of the narrowest, rounded down."""
    total = {(src, dst): bandwidth * count for src, dst, bandwidth, _, count in topology.links}
    return {link: bandwidth // min(total.values()) for link, bandwidth in total.items()}


def _diameter(topology: Topology) -> int:
    return max(
        len(path) + 1
        for src in range(topology.ranks)
        for dst, path in shortest_paths(topology, src).items()
        if dst != src
    )


@lru_cache(maxsize=64)
def gather(topology: Topology, chunks: int) -> list[Tree]:
    """Trees of an all-gather in the fewest rounds that the solver finds, of those in the fewest steps."""
    shortest = _diameter(topology)
    for rounds in range(ceil(bound(topology) * chunks), chunks * topology.ranks * shortest):
        for steps in range(shortest, min(rounds, shortest + _EXTRA_STEPS) + 1):
            if trees := solve(topology, Point(steps, rounds, chunks), _NODES):
                return trees
    raise UsageError(f"the solver finds no schedule in {_NODES} nodes of its search; use another builder")


def _make(collective: str, topology: Topology, pieces: int) -> Schedule:
    back = topology.reversed()
    up = None if topology == back else gather(back, pieces)
    return schedule_of(gather(topology, pieces), "exact", collective, topology, up=up, ordered=True)


def _refuses(topology: Topology) -> str:
    if topology.nodes > topology.ranks or topology.is_complete:
        return "it needs links between ranks, each with a bandwidth of its own"
    if topology.ranks > _MOST_RANKS:
        return f"it needs at most {_MOST_RANKS} ranks; for {topology.ranks} the solver may take hours"
    return ""


exact = Builder("exact", _make, _refuses, pieces=(1, 2, 6))
