"""Integer programs, written down row by row and solved by a library."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from math import inf


class Program:
    """Finds whole numbers that keep within bounds and rows.

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
